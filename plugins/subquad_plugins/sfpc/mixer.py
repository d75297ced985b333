"""SFPC as a token mixer: a polynomial of a fixed matrix between two projections, with a gate if
wanted.

out = W_o (gate(W_g x) * p(T) (W_v x)). The paper has p(T) x alone; `projections: false` is that.
The operator is computed in fp32 at least, also under autocast.

Letters: B batch, L length, D model width, H heads, K order.
Reference: Hussain et al. 2025, Definition 4.1. Departures: projections, gate, a polynomial for each
channel by default, Chebyshev basis by default; docs/reference/mixers/sfpc.md has the reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import Cache, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import take_rows, wide
from subquad_plugins.sfpc import Config
from subquad_plugins.sfpc.basis import to_chebyshev
from subquad_plugins.sfpc.operator import applied, per_channel, way_of

SMALL = 0.1
"""Sum of all starting coefficients but the first: close to the identity, yet with a gradient for
a learned column.
"""

GATES = {"silu": F.silu, "sigmoid": torch.sigmoid}


class Polynomial(nn.Module):
    """p(T), with its coefficients.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        jacobi = {"jacobi_a": config.jacobi_a, "jacobi_b": config.jacobi_b}
        self.way = way_of(
            config.operator,
            config.polynomials,
            config.path,
            config.order,
            boundary=config.boundary,
            **jacobi,
        )
        rows = {"shared": 1, "head": site.num_heads, "channel": site.dim}[config.coefficients]
        self.coefficients = nn.Parameter(starting_coefficients(config).repeat(rows, 1))
        if _learns_column(config):
            self.first_column = nn.Parameter(_decay(config, site))
        else:
            self.first_column = None
        # A plain array: a buffer would lose digits with `model.half()`.
        if isinstance(config.first_column, tuple):
            self.given = np.array(config.first_column)
        else:
            self.given = None

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """p(T) x, (B, L, D), computed in fp32 at least, zero at padding; of no tokens, none."""
        if self.config.operator == "circulant":
            column = self._column(wide(x))
        else:
            column = None
        return applied(x, self.coefficients, self.way, column, keep)

    def next_value(self, x: Tensor, past: Tensor) -> Tensor:
        """p(S) at one position of each sample: x (B, D) there, past (B, K, D) before it, the
        newest last.
        """
        c = per_channel(self.coefficients.to(x.dtype), x.shape[1])
        return c[:, 0] * x + (past * c[:, 1:].flip(1).T).sum(1)

    def _column(self, x: Tensor) -> Tensor:
        """The circulant's first column for this length, (L,): a shorter input takes the first L
        values.

        A learned one is divided by its sum of magnitudes where that exceeds 1, so that no power of
        it can grow.
        """
        length = x.shape[1]
        if self.config.first_column == "decay":
            return _decay_of(length, self.config.decay_length, x)
        if self.first_column is not None:
            stored = self.first_column
        else:
            stored = torch.as_tensor(self.given, device=x.device)
        if length > len(stored):
            raise PluginError(
                f"sfpc: {length} tokens, and the circulant's first column has {len(stored)} values"
            )
        column = stored[:length].to(x.dtype)
        if self.first_column is None:
            return column
        return column / column.abs().sum().clamp_min(1.0)


class SFPC(TokenMixer):
    """Polynomial of a fixed operator.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        if config.projections:
            self.value = nn.Linear(site.dim, site.dim)
        else:
            self.value = None
        self.polynomial = Polynomial(config, site)
        if config.gate != "none":
            self.gate = nn.Linear(site.dim, site.dim)
        else:
            self.gate = None
        if config.projections:
            self.out = nn.Linear(site.dim, site.dim)
        else:
            self.out = None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        return self._finish(x, self._filter(value, keep))

    @property
    def caches(self) -> bool:
        return self.config.operator == "shift"

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        if not self.caches:
            return super().prefill(x, keep=keep)
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        if keep is None:
            real = value
        else:
            real = value.masked_fill(~keep[..., None], 0.0)
        return self._finish(x, self._filter(value, keep)), {
            "past": _newest(real, self.config.order, keep)
        }

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        if not self.caches:
            return super().step(x, cache)
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        past = cache["past"]
        with torch.autocast(x.device.type, enabled=False):
            mixed = self.polynomial.next_value(wide(value), wide(past)).to(value.dtype)
        return self._finish(x, mixed), {
            "past": torch.cat([past[:, 1:], value[:, None].to(past.dtype)], 1)
        }

    def _filter(self, value: Tensor, keep: Tensor | None) -> Tensor:
        with torch.autocast(value.device.type, enabled=False):
            return self.polynomial(value, keep).to(value.dtype)

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        if self.gate is not None:
            mixed = mixed * GATES[self.config.gate](self.gate(x))
        if self.out is None:
            return mixed
        return self.out(mixed)


def starting_coefficients(config: Config) -> Tensor:
    """(K+1,): 1, and a little of every other polynomial, divided by the most it can reach on the
    spectrum.
    """
    start = torch.full((config.order + 1,), SMALL / config.order)
    if config.operator == "laplacian":
        matrix = to_chebyshev(config.polynomials, config.order, config.jacobi_a, config.jacobi_b)
        start = start / torch.tensor(abs(matrix).sum(1).clip(1.0), dtype=start.dtype)
    start[0] = 1.0
    return start


def _learns_column(config: Config) -> bool:
    return config.operator == "circulant" and config.first_column == "learned"


def _decay(config: Config, site: Site) -> Tensor:
    if not site.max_len:
        raise PluginError(
            "sfpc: a learned first_column needs the longest sequence's length, "
            "which is not known here"
        )
    return _decay_of(site.max_len, config.decay_length, torch.empty(0))


def _decay_of(length: int, decay_length: float, like: Tensor) -> Tensor:
    """exp(-i / decay_length), scaled to the sum 1, (L,)."""
    decay = torch.exp(-torch.arange(length, device=like.device, dtype=torch.float64) / decay_length)
    return (decay / decay.sum()).to(like.dtype)


def _newest(real: Tensor, order: int, keep: Tensor | None) -> Tensor:
    """The last K tokens of each sample, (B, K, D), the newest last, zeros where there are fewer."""
    padded = F.pad(real, (0, 0, order, 0))
    if keep is None:
        lengths = torch.full((real.shape[0], 1), real.shape[1], device=real.device)
    else:
        lengths = keep.sum(1, True)
    index = lengths + torch.arange(order, device=real.device)
    return take_rows(padded, index)
