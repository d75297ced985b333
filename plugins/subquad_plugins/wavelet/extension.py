"""How a finite sequence goes on before its first and after its last token: the nine modes of
PyWavelets.

Every mode takes each token outside from tokens inside: x~_p = scale x_i + first x_0 + last x_{n-1},
where i, scale, first and last depend on the position p, the length n and the mode only (`source`).

Letters: B batch, N length of the array, n length of a sequence, D width, p position (below 0:
before the sequence).
Reference: PyWavelets, "Signal extension modes".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
import torch
from torch import Tensor

from subquad_plugins.numerics.continuation import Source, source
from subquad_plugins.numerics.tensors import take_rows
from subquad_plugins.wavelet.linear import linear_map


def extend(x: Tensor, before: int, after: int, mode: str) -> Tensor:
    """Sequences with tokens added at both ends.

    Args:
        x: (B, N, D).
        before: how many to add in front.
        after: how many to add behind.
        mode: see `source`.

    Returns:
        (B, before + N + after, D).
    """
    if not before and not after:
        return x
    length = x.shape[1]
    # lru_cache is not for the compiler, which would warn and look through it.
    find = _runs.__wrapped__ if torch.compiler.is_compiling() else _runs
    runs = find(mode, length, before, after)

    def forward(x: Tensor) -> Tensor:
        return _fill(x, runs, before, after)

    def transpose(grad: Tensor) -> Tensor:
        return _fold(grad, runs, before, length)

    return linear_map(forward, transpose, x)


def extend_each(x: Tensor, lengths: Tensor, before: int, after: int, mode: str) -> Tensor:
    """`extend` for sequences of different lengths that begin at the array's start; what follows
    them is not read.

    Args:
        x: (B, N, D).
        lengths: (B,), at most N; a sequence of length 0 is taken for one of length 1.

    Returns:
        (B, before + N + after, D): sample b's tokens at `before` .. `before + lengths[b]`, and
        their extension on both sides up to the array's ends.
    """
    n = lengths.clamp_min(1)[:, None]
    p = torch.arange(-before, x.shape[1] + after, device=x.device)[None]
    index, scale, first, last = source(mode, p, n)
    out = take_rows(x, index)
    if isinstance(scale, Tensor):
        out = out * scale[..., None]
    if isinstance(first, Tensor):
        out = out + first[..., None] * x[:, :1] + last[..., None] * take_rows(x, n - 1)
    return out


@dataclass(frozen=True)
class _Run:
    """Positions at .. at + count of the extended array: tokens start, start + step, ... of x,
    with their factors.
    """

    at: int
    count: int
    start: int
    step: int
    scale: int
    first: int
    last: int


@lru_cache(maxsize=4096)
def _runs(mode: str, n: int, before: int, after: int) -> tuple[_Run, ...]:
    """All positions outside the sequence, as few runs as there are."""
    left = _gather_runs([(p + before, source(mode, p, n)) for p in range(-before, 0)])
    right = _gather_runs([(p + before, source(mode, p, n)) for p in range(n, n + after)])
    return (*left, *right)


def _gather_runs(places: list[tuple[int, Source]]) -> Iterator[_Run]:
    while places:
        at, (index, *factors) = places[0]
        if len(places) > 1:
            step = places[1][1].index - index
        else:
            step = 1
        step = step if step in (-1, 0, 1) else 1
        count = 1
        while count < len(places) and places[count][1] == (index + count * step, *factors):
            count += 1
        scale, first, last = (int(factor) for factor in factors)
        if scale or first or last:
            yield _Run(at, count, int(index), step, scale, first, last)
        places = places[count:]


def _fill(x: Tensor, runs: tuple[_Run, ...], before: int, after: int) -> Tensor:
    length = x.shape[1]
    out = x.new_empty(x.shape[0], before + length + after, x.shape[2])
    out[:, before : before + length] = x
    out[:, :before] = 0
    out[:, before + length :] = 0
    for run in runs:
        part = out[:, run.at : run.at + run.count]
        part.add_(_tokens(x, run), alpha=run.scale)
        if run.first:
            part.add_(x[:, :1], alpha=run.first)
        if run.last:
            part.add_(x[:, -1:], alpha=run.last)
    return out


def _fold(grad: Tensor, runs: tuple[_Run, ...], before: int, length: int) -> Tensor:
    """The transpose of `_fill`."""
    out = grad[:, before : before + length].clone()
    for run in runs:
        part = grad[:, run.at : run.at + run.count]
        if run.first:
            out[:, :1].add_(part.sum(1, keepdim=True), alpha=run.first)
        if run.last:
            out[:, -1:].add_(part.sum(1, keepdim=True), alpha=run.last)
        if run.step == 0:
            part = part.sum(1, keepdim=True)
        if run.step == -1:
            part = part.flip(1)
        if run.step != -1:
            low = run.start
        else:
            low = run.start - run.count + 1
        out[:, low : low + part.shape[1]].add_(part, alpha=run.scale)
    return out


def _tokens(x: Tensor, run: _Run) -> Tensor:
    if run.step == 0:
        return x[:, run.start : run.start + 1]
    if run.step == 1:
        return x[:, run.start : run.start + run.count]
    return x[:, run.start - run.count + 1 : run.start + 1].flip(1)
