"""Softmax attention to keys that lie in several parts, each shared by runs of queries of its own
length.

A window is a part, tokens that all see another. No part is copied to stand beside the others of
each run.

Letters: B batch, H heads, L length, E and Ev head width of keys and values, R runs of B L / R
queries, S keys of a run.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation


def attention_in_parts(q: Tensor, *parts: Tensor) -> Tensor:
    """One softmax over the keys of all parts.

    Args:
        q: (B, L, H, E).
        parts: keys (R, H, S, E), values (R, H, S, Ev) and a mask, bool (R, H or 1, 1, S), True =
            seen, of each part. R is B, or B N with the same N for all other parts, whose masks may
            be (R, H or 1, L / N, S). Every query sees a key in one of the parts at least.

    Returns:
        (B, L, H, Ev).
    """
    return _ATTENTION(q, *parts)


def _runs(x: Tensor, k: Tensor) -> Tensor:
    """(B, L, H, ..) to (R, H, B L / R, ..), for the runs of a part's keys."""
    return x.reshape(k.shape[0], -1, *x.shape[2:]).transpose(1, 2)


def _beside(q: Tensor, *parts: Tensor) -> Tensor:
    """With each part's keys beside the others', for each run of the shortest."""
    batch = q.shape[0]
    runs = max(x.shape[0] for x in parts) // q.shape[0]

    def joined(tensors: tuple[Tensor, ...], axis: int, *sizes: int) -> Tensor:
        repeated = [x.unflatten(0, (batch, -1)).expand(-1, runs, *sizes) for x in tensors]
        return torch.cat(repeated, axis).flatten(0, 1)

    k, v = (joined(parts[i::3], 3, -1, -1, -1) for i in range(2))
    masks = parts[2::3]
    mask = joined(masks, 4, *torch.broadcast_shapes(*(mask.shape[1:3] for mask in masks)), -1)
    out = F.scaled_dot_product_attention(_runs(q, k), k, v, attn_mask=mask)
    return out.transpose(1, 2).reshape(*q.shape[:3], -1)


_ATTENTION = Operation("parts.attention", reference=_beside)


def _fits(q: Tensor, *parts: Tensor) -> bool:
    alike = {(x.dtype, x.shape[-1]) for i in range(2) for x in parts[i::3]} == {
        (q.dtype, q.shape[-1])
    }
    return alike and q.device.type == "cpu" and q.numel() > 0 and not torch.compiler.is_compiling()


@_ATTENTION.implementation("merged", when=_fits)
def _merged(q: Tensor, *parts: Tensor) -> Tensor:
    return _Merged.apply(q, *parts)  # pyright: ignore[reportReturnType]


class _Merged(torch.autograd.Function):
    """torch's fused kernel for each part, weighted by the parts' sums of exponentials.

    Backwards the kernel takes the output and the sum of all parts, which makes its gradients those
    of one softmax.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, *parts: Tensor) -> Tensor:
        outs = []
        sums = []
        saved = []
        for k, v, visible in zip(*(parts[i::3] for i in range(3)), strict=True):
            mask = torch.zeros_like(visible, dtype=q.dtype).masked_fill_(~visible, -torch.inf)
            out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                _runs(q, k), k, v, attn_mask=mask
            )
            # Of a row without a key the kernel's sum means nothing.
            log_sum = log_sum.masked_fill(~visible.any(-1), -torch.inf)
            outs.append(out.transpose(1, 2).reshape(q.shape))
            sums.append(log_sum.transpose(1, 2).reshape(q.shape[:-1]))
            saved += [k, v, mask]
        total = torch.stack(sums).logsumexp(0)
        out = torch.zeros_like(outs[0])
        for part, log_sum in zip(outs, sums, strict=True):
            share = (log_sum - total).exp_().to(q.dtype)
            out.addcmul_(part, share[..., None])
        ctx.save_for_backward(q, out, total, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, out, total, *parts = ctx.saved_tensors
        grad = grads[0].contiguous()
        to_q = torch.zeros_like(q)
        to_parts = []
        for k, v, mask in zip(*(parts[i::3] for i in range(3)), strict=True):
            rows = (_runs(x, k) for x in (grad, q))
            sums = (_runs(x, k) for x in (out, total))
            grad_q, grad_k, grad_v = (
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    *rows, k, v, *sums, 0.0, False, attn_mask=mask
                )
            )
            to_q += grad_q.transpose(1, 2).reshape(q.shape)
            to_parts += [grad_k, grad_v, None]
        return to_q, *to_parts
