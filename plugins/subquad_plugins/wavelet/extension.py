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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subquad_plugins.numerics.tensors import take_rows
from subquad_plugins.wavelet.linear import linear_map


class Source(NamedTuple):
    """x~_p = scale x_index + first x_0 + last x_{n-1}."""

    index: Any
    scale: Any
    first: Any = 0
    last: Any = 0


def source(mode: str, p: Any, n: Any) -> Source:
    """Where the token at position p of an extended sequence of n >= 1 tokens comes from.

    Args:
        mode: one of PyWavelets' names.
        p: any whole number, or a tensor of them.
        n: length, or a tensor of lengths that broadcasts with p.
    """
    before = p < 0
    after = p >= n
    inside = 1 - 1 * before - 1 * after
    if mode == "zero":
        return Source(p * inside, inside)
    if mode == "constant":
        return Source(p * inside + after * (n - 1), 1)
    if mode == "periodic":
        return Source(p % n, 1)
    if mode == "periodization":  # periodic, with the last token twice where n is odd
        turn = p % (n + n % 2)
        return Source(turn - (turn >= n) * 1, 1)
    if mode == "smooth":  # straight on through the two outermost tokens
        next_to = before * (n > 1) * 1 + after * (n - 2 + (n == 1) * 1)
        far = after * (p - n + 1) - before * p
        return Source(p * inside + next_to, inside - far, before * (1 + far), after * (1 + far))
    if mode in ("symmetric", "antisymmetric"):
        turn = p % (2 * n)
        back = 1 * (turn >= n)
        return Source(
            turn + back * (2 * n - 1 - 2 * turn), 1 if mode == "symmetric" else 1 - 2 * back
        )
    period = 2 * n - 2 + (n == 1) * 1
    turn = p % period
    lap = p // period
    back = 1 * (turn >= n)
    index = turn + back * (period - 2 * turn)
    if mode == "reflect":
        return Source(index, 1)
    # antireflect: turned about the outermost token
    return Source(index, 1 - 2 * back, -2 * lap, 2 * lap + 2 * back)


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
