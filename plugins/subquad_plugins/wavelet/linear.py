"""A linear map given together with its transpose, which is its backward pass.

Written out by hand a transpose costs as much as the map; autograd's takes one full-size array for
each slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Map = Callable[..., Any]
"""Tensors in; one tensor, or a tuple of them, out."""


def linear_map(forward: Map, transpose: Map, *inputs: Tensor) -> Any:
    """forward(*inputs), differentiable to any order by `transpose`, the transpose of `forward`.

    Under torch.compile `forward` is traced as it is: the compiler makes its own backward pass.
    """
    if torch.compiler.is_compiling():
        return forward(*inputs)
    return _LinearMap.apply(forward, transpose, *inputs)


class _LinearMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Map, transpose: Map, *inputs: Tensor) -> Any:
        ctx.maps = forward, transpose
        return forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        forward, transpose = ctx.maps
        gradients = linear_map(transpose, forward, *grads)
        return None, None, *(gradients if isinstance(gradients, tuple) else (gradients,))
