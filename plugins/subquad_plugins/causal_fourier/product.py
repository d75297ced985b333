"""Matrix products that autocast leaves alone, in the backward pass too.

A context around the forward pass does not reach a backward pass that is started inside autocast:
that would multiply in half precision.

Letters: T rows, K columns, B batch, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def wide_product(weights: Tensor, x: Tensor) -> Tensor:
    """weights @ x in the dtype of both, whatever autocast says, and so are its gradients, to any
    order.

    Args:
        weights: (T, K), the same for each sample, or (B, T, K).
        x: (B, K, D).

    Returns:
        (B, T, D).
    """
    if weights.ndim == 3:
        return _Product.apply(weights, x)  # pyright: ignore[reportReturnType]
    # One product for the whole batch, whose gradient to `weights` is a single matrix.
    folded = _Product.apply(weights, x.transpose(0, 1).flatten(1))
    return folded.unflatten(1, (x.shape[0], x.shape[2])).transpose(0, 1)  # pyright: ignore[reportOptionalMemberAccess]


class _Product(torch.autograd.Function):
    """a @ b, two matrices or two batches of them; keeps only what a gradient is asked for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast(a.device.type, enabled=False):
            return a @ b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b = inputs
        ctx.save_for_backward(
            a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        if b is None:
            to_a = None
        else:
            to_a = _Product.apply(grads[0], b.mT)
        if a is None:
            to_b = None
        else:
            to_b = _Product.apply(a.mT, grads[0])
        return to_a, to_b
