"""Relative position biases: B[i, j] = b(j - i), as one value per distance.

Both published forms depend on the distance alone, so each offers the 2 L - 1 values b(-(L - 1)) ..
b(L - 1); the dense matrix, some of its rows, or some of its columns are then a matter of indexing.

Letters: B batch, L length, M selected rows or columns, z attention width, P largest number of
positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad_plugins.numerics.tensors import wide


class RelativeBias(nn.Module, ABC):
    """A bias that depends on the distance of key and query."""

    limit: int | None
    """Largest number of positions, or None."""

    @abstractmethod
    def distances(self, length: int) -> Tensor:
        """b(-(L - 1)) .. b(L - 1), (2 L - 1,), fp32 at least; place L - 1 + j - i belongs to query
        i and key j.

        Raises:
            PluginError: the length is above the limit.
        """


class SimpleBias(RelativeBias):
    """One learned number per distance.

    Args:
        limit: P; distances up to P - 1 have a number.
    """

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit
        self.table = nn.Parameter(torch.randn(2 * limit - 1) * 0.02)

    def distances(self, length: int) -> Tensor:
        limit = (len(self.table) + 1) // 2
        if length > limit:
            raise PluginError(
                f"a sequence of {length} tokens is too long for a relative bias of "
                f"{limit} positions: "
                "build the mixer for longer ones, with a larger max_positions, or with bias rotary"
            )
        return wide(self.table[limit - length : limit + length - 1])


class RotaryBias(RelativeBias):
    """<R_i a, R_j b> with learned vectors a, b and rotations R_t: channel pair m is turned by t /
    10000^(m / (z/2)).

    The authors' code builds both rotated (L, z) tables and their product; as the rotations cancel
    up to the distance t = j - i, b(t) = sum_m (a_m b_m + a'_m b'_m) cos(t w_m) + (a'_m b_m - a_m
    b'_m) sin(t w_m), which costs L z.

    Args:
        width: z, even.
    """

    def __init__(self, width: int):
        super().__init__()
        self.limit = None
        self.query = nn.Parameter(torch.randn(width) * 0.02)
        self.key = nn.Parameter(torch.randn(width) * 0.02)

    def distances(self, length: int) -> Tensor:
        (a, a2) = wide(self.query).chunk(2)
        (b, b2) = wide(self.key).chunk(2)
        places = torch.arange(1 - length, length, device=a.device, dtype=torch.float64)
        rates = 10000.0 ** (-torch.arange(len(a), device=a.device, dtype=torch.float64) / len(a))
        angles = places[:, None] * rates
        cosines = angles.cos().to(a.dtype)
        sines = angles.sin().to(a.dtype)
        in_phase = a * b + a2 * b2
        across = a2 * b - a * b2
        return cosines @ in_phase + sines @ across


def dense_bias(distances: Tensor) -> Tensor:
    """B[i, j], (L, L), from (2 L - 1,)."""
    return distances.unfold(0, (len(distances) + 1) // 2, 1).flip(0)


def bias_rows(distances: Tensor, rows: Tensor) -> Tensor:
    """B[rows], (..., M, L), from (2 L - 1,) and row numbers (..., M)."""
    length = (len(distances) + 1) // 2
    return distances[length - 1 + torch.arange(length, device=rows.device) - rows[..., None]]


def bias_columns(distances: Tensor, columns: Tensor) -> Tensor:
    """B[:, columns], (..., L, M), from (2 L - 1,) and column numbers (..., M)."""
    length = (len(distances) + 1) // 2
    return distances[
        length - 1 + columns[..., None, :] - torch.arange(length, device=columns.device)[:, None]
    ]
