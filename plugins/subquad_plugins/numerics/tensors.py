"""Small operations that several mixers and tasks share."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError

MASKED_LOGIT = -1e9
"""Of a padded token: finite, as in AGF's LRA code, so that a sample without any real token stays
finite.
"""

LAPLACE_MEAN = 0.707107
LAPLACE_DEVIATION = 0.282095
"""With the six digits of Mega's code: sqrt(1/2) and sqrt(1 / (4 pi)), which bring value and
slope of the Laplace function nearest to those of relu(x)^2 at x = sqrt(2).
"""


def wide(x: Tensor) -> Tensor:
    """In fp32 at least: half precision is too narrow for sums, roots and FFTs."""
    return x.to(wide_type(x))


def wide_type(x: Tensor) -> torch.dtype:
    """The number format of sums and exponents of x, fp32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def operand(x: Tensor) -> Tensor:
    """As a factor of products, whose sums are in fp32: bf16 stays. fp16 is made fp32, as the range
    of its results is too narrow for sums over tokens.
    """
    if x.dtype == torch.float16:
        return x.float()
    return x


def precast(x: Tensor) -> Tensor:
    """As products of matrices around will take it: under autocast in its format, cast once."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def check_fit(task: str, outputs: Tensor, labels: Tensor, *, classes: bool = False) -> None:
    """Refuse outputs that are not of what the data set labels.

    Args:
        task: its name.
        outputs: with `classes` one number for each class in the last axis, where labels have none.
        labels: of any shape.

    Raises:
        PluginError: the shapes do not fit.
    """
    if (outputs.shape[:-1] if classes else outputs.shape) != labels.shape:
        raise PluginError(
            f"task {task}: outputs of shape {tuple(outputs.shape)} do not fit "
            f"labels of shape {tuple(labels.shape)}"
        )


def laplace(scores: Tensor) -> Tensor:
    """Attention weights of single scores: Phi((x - mean) / deviation), Phi the normal distribution.

    Reference: Ma et al. 2023, Mega, Eq. 16.
    """
    # Not 1 + erf, which has no digits left below z = -1 in fp32, and none at all below -4.
    return 0.5 * torch.erfc((LAPLACE_MEAN - scores) / (LAPLACE_DEVIATION * math.sqrt(2)))


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of each sample (and head): x (B, .., L, E), index (B, .., m) to (B, .., m, E); 1 instead
    of a head: of all.

    `take_along_dim` does the same, but torch.export would take the number of samples for a
    constant.
    """
    whole_rows = index[..., None].expand(*x.shape[:-2], -1, x.shape[-1])
    return x.gather(-2, whole_rows)


_MATRIX = 1 << 14
"""Numbers of a matrix that is worth a call of its own."""


def swapped(x: Tensor) -> Tensor:
    """(B, M, N) to (B, N, M), contiguous.

    torch transposes single matrices on a CPU by tiles, two to three times as fast as all of a batch
    together.
    """
    matrices = (
        x.device.type == "cpu"
        and x.shape[1] * x.shape[2] >= _MATRIX
        and not torch.compiler.is_compiling()
    )
    if matrices and not x.mT.is_contiguous():
        return _Swapped.apply(x)  # pyright: ignore[reportReturnType]
    return x.mT.contiguous()


class _Swapped(torch.autograd.Function):
    """Matrix by matrix, in both passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], x.shape[2], x.shape[1], dtype=x.dtype)
        for target, source in zip(out, x.contiguous(), strict=True):
            target.copy_(source.T)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return swapped(grads[0])


_PIECE = 1 << 17
"""Numbers of a piece of the channels, for which caches do."""


def channel_pieces(x: Tensor) -> list[slice]:
    """Channels of x (B, D, L) to be worked on together: on a CPU so few that caches hold them,
    else all.
    """
    if x.device.type == "cpu":
        step = _PIECE // max(1, x.shape[0] * x.shape[2])
    else:
        step = x.shape[1]
    return [slice(at, at + max(1, step)) for at in range(0, x.shape[1], max(1, step))]


_TOGETHER = 64
"""Outputs of a convolution that are made by one product."""


def head_convolution(x: Tensor, weights: Tensor) -> Tensor:
    """Each head convolved along its tokens, (B, H, L, E), with (H, K) weights, K odd, the middle
    one the token's own.

    By products with banded matrices: in both passes six times as fast as a grouped convolution of
    torch on a CPU.
    """
    width = weights.shape[1]
    length = x.shape[2]
    rest = -length % _TOGETHER
    near = F.pad(x, (0, 0, width // 2, rest + width // 2)).unfold(
        2, _TOGETHER + width - 1, _TOGETHER
    )
    place = torch.arange(_TOGETHER + width - 1, device=x.device)
    lag = place - place[:_TOGETHER, None]
    inside = (lag >= 0) & (lag < width)
    band = torch.where(inside, weights[:, lag.clamp(0, width - 1)], 0.0)
    return torch.einsum("bhnes,hts->bhnte", near, band).flatten(2, 3)[:, :, :length]
