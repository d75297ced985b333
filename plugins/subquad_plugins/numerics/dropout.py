"""Dropout from 16 random bits a number: on a CPU a fifth of the time of torch's, which draws a
float for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

_CHANCES = 1 << 16
_LOWEST = torch.iinfo(torch.int64).min
_MANY = 1 << 16
"""Words of 64 bits from which a generator that is twice as fast, but has to be seeded each time,
pays.
"""


class Dropout(nn.Dropout):
    """torch's module: in training drops each number with probability p and scales the others, so
    that the mean stays.

    Args:
        p: from 0 to 1. On a CPU rounded to a multiple of 1/65536, and the scale with it.
    """

    def __init__(self, p: float):
        super().__init__(p)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and self.p:
            return dropout(input, self.p)
        return input


def dropout(x: Tensor, p: float) -> Tensor:
    """x with numbers dropped with probability p, see `Dropout`.

    The random bits come from torch's generator; for a large tensor its seed does, and the bits from
    NumPy's SFC64. torch's own dropout runs on other devices, under torch.compile, and where p
    rounds to 0 or 1.
    """
    if has_torch_function_unary(x):
        return handle_torch_function(dropout, (x,), x, p)
    dropped = round(p * _CHANCES)
    if not 0 < dropped < _CHANCES or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return _Dropped.apply(x, dropped)  # pyright: ignore[reportReturnType]


class _Dropped(torch.autograd.Function):
    """Keeps the numbers whose 16 bits, as a signed integer, are at least `dropped` above the
    lowest.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        bits = _random_words(-(-x.numel() // 4)).view(torch.int16)[: x.numel()].view(x.shape)
        ctx.save_for_backward(bits)
        ctx.dropped = dropped
        return _masked(x, bits, dropped)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (bits,) = ctx.saved_tensors
        return _masked(grads[0], bits, ctx.dropped), None


def _random_words(count: int) -> Tensor:
    """int64 of which every bit is random. torch draws them where its operations are counted or
    traced, of any size.
    """
    if count < _MANY or is_in_torch_dispatch_mode():
        return torch.empty(count, dtype=torch.int64).random_(_LOWEST, None)  # pyright: ignore[reportCallIssue]
    seed = int(torch.empty((), dtype=torch.int64).random_())
    return torch.from_numpy(np.random.SFC64(seed).random_raw(count).view(np.int64))


def _masked(x: Tensor, bits: Tensor, dropped: int) -> Tensor:
    # Written as x's format: comparing into booleans, and multiplying by them, takes three times as
    # long.
    kept = torch.ge(bits, dropped - _CHANCES // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return torch.addcmul(x.new_zeros(()), kept, x, value=_CHANCES / (_CHANCES - dropped), out=kept)
