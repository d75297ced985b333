"""Linear recurrences along the sequence, h_t = a_t h_{t-1} + b_t, each number by itself, h_{-1} =
0.

The sequence is cut into about sqrt(L) chunks of as many tokens. All chunks run side by side from
zero, which gives the end of each; a short loop over the chunks then gives where each starts, and
all run once more from there. So there are about 3 sqrt(L) steps, nothing is divided, and no
logarithm is taken: a may be zero, or complex.

The backward pass is the same recurrence from the end: g_t = dh_t + conj(a_{t+1}) g_{t+1}, db = g,
da_t = g_t conj(h_{t-1}). Operation "scan".

Letters: B batch, L length, N chunks, T tokens of a chunk, .. any further dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from subquad.nn.kernels import Operation


def naive_scan(a: Tensor, b: Tensor) -> Tensor:
    """The recurrence, one token after another.

    Args:
        a: (B, L, ..), real or complex.
        b: (B, L, ..), of one shape with a.

    Returns:
        h, (B, L, ..).
    """
    state = torch.zeros_like(b[:, 0])
    states = []
    for now, new in zip(a.unbind(1), b.unbind(1), strict=True):
        state = now * state + new
        states.append(state)
    return torch.stack(states, 1)


def scan(a: Tensor, b: Tensor) -> Tensor:
    """As `naive_scan`, chunk by chunk; a and b are broadcast to one shape.

    Reference: the chunking is that of Blelloch 1990, Prefix Sums and Their Applications, with two
    levels.
    """
    return _SCAN(*torch.broadcast_tensors(a, b))


_SCAN = Operation("scan", reference=naive_scan)


@_SCAN.implementation("chunked")
def _chunked(a: Tensor, b: Tensor) -> Tensor:
    return _Scan.apply(a, b, False)  # pyright: ignore[reportReturnType]


class _Scan(torch.autograd.Function):
    """`naive_scan`, or from the end where `backwards`; it keeps a and h."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, backwards: bool) -> Tensor:
        h = _run(a, b, backwards)
        ctx.save_for_backward(a, h)
        ctx.backwards = backwards
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, h = ctx.saved_tensors
        to_b: Any = _Scan.apply(_moved(a, not ctx.backwards).conj(), grads[0], not ctx.backwards)
        return to_b * _moved(h, ctx.backwards).conj(), to_b, None


def _moved(x: Tensor, forwards: bool) -> Tensor:
    """Each token's place taken by the next one, or the one before where not `forwards`; zeros at
    the end.
    """
    end = torch.zeros_like(x[:, :1])
    if forwards:
        return torch.cat([x[:, 1:], end], 1)
    return torch.cat([end, x[:, :-1]], 1)


def _run(a: Tensor, b: Tensor, backwards: bool) -> Tensor:
    """Whole chunks together, and what is left over as one more."""
    length = b.shape[1]
    size = max(math.isqrt(length), 1)
    out = torch.empty_like(b)
    state = torch.zeros_like(b[:, 0])
    whole = length - length % size
    parts = [part for part in (slice(whole), slice(whole, length)) if part.start != length]
    for part in parts[:: -1 if backwards else 1]:
        chunks = (-1, size if part.stop == whole else length % size)
        now, new, to = (x[:, part].unflatten(1, chunks) for x in (a, b, out))
        state = _side_by_side(now, new, to, state, backwards)
    return out


def _side_by_side(a: Tensor, b: Tensor, out: Tensor, state: Tensor, backwards: bool) -> Tensor:
    """The recurrence of (B, N, T, ..) written to `out`, from `state` (B, ..) on; returns the
    state after it.
    """
    order = slice(None, None, -1 if backwards else 1)
    places = range(a.shape[2])[order]
    chunks = range(a.shape[1])[order]
    ends = torch.zeros_like(b[:, :, 0])
    products = torch.ones_like(b[:, :, 0])
    if len(chunks) > 1:
        for t in places:
            ends = torch.addcmul(b[:, :, t], a[:, :, t], ends)
            products = products * a[:, :, t]
    starts = torch.empty_like(ends)
    for n in chunks:
        starts[:, n] = state
        state = torch.addcmul(ends[:, n], products[:, n], state)
    for t in places:
        starts = torch.addcmul(b[:, :, t], a[:, :, t], starts)
        out[:, :, t] = starts
    return starts[:, chunks[-1]]
