"""Which rows of Q and K stand for the rest: the selections of CUR attention.

All choose among a sample's real tokens as if it stood alone: padding before, between or after them
moves nothing, and a sample with fewer tokens than asked for gives all it has.

Letters: B batch, H heads, L length, E head width, m picks, n real tokens of a sample.
Reference: paper Sec. 7.1 (sum, abs, embedding, step, random; the class token). `step_full` and
`linspace` are ours.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Selection = Literal["sum", "abs", "embed", "step", "step_full", "linspace", "random"]
Source = Literal["q", "k", "q+k"]


@torch.no_grad()
def select_indices(
    q: Tensor,
    k: Tensor,
    m: int,
    selection: Selection,
    *,
    source: Source = "q+k",
    column: int = 0,
    keep: Tensor | None = None,
    force_first: bool = False,
    seed: int | Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The picked tokens of each sample and head, in ascending order.

    - "sum", "abs", "embed": the m largest row sums, sums of magnitudes, or values of one column;
      ties go to the earlier token.
    - "step": every (n // m)-th token, the first m of them. "step_full": all of them, up to 2 m - 1.
    - "linspace": floor(i n / m), which reaches the end where "step" does not; the same where m
      divides n.
    - "random": m tokens without replacement.

    Args:
        q: (B, H, L, E).
        k: (B, H, L, E); only `source` needs it to have q's length.
        m: how many, at least 1.
        selection: see above.
        source: whose rows the scores are of; "q+k" adds the scores of both.
        column: the one of "embed".
        keep: (B, L) bool, True = real token; None when all are real.
        force_first: the first real token is picked in any case, in place of the worst pick (regular
            distances always have it).
        seed: of "random": the picks then depend on it, the head and n alone; None: drawn anew from
            torch's generator.

    Returns:
        indices (B, H, p), and which of them count, (B, H, p) bool: None where all do. p is m or L
        if that is less, for "step_full" up to 2 m - 1. Picks that a short sample does not have come
        last and repeat its last pick.
    """
    # picks have no gradient
    q = q.detach()
    k = k.detach()
    rows = k if source == "k" else q
    if keep is not None:
        keep = keep | ~keep.any(1, keepdim=True)
    if selection in ("step", "step_full", "linspace"):
        index, counted = spaced_indices(rows.shape[2], m, selection, keep, rows.device)
        shape = (*rows.shape[:2], index.shape[-1])
        return index[:, None].expand(shape), None if counted is None else counted[:, None].expand(
            shape
        )
    if selection == "random":
        if seed is None:
            scores = torch.rand(rows.shape[:3], device=rows.device)
        else:
            scores = _fixed_scores(rows, keep, seed)
    else:
        scores = row_scores(rows, selection, column)
        if source == "q+k":
            scores = scores + row_scores(k, selection, column)
    return top_indices(scores, m, keep, force_first)


def row_scores(x: Tensor, selection: Selection, column: int = 0) -> Tensor:
    """What "sum", "abs" and "embed" rank rows by: (B, H, L, E) to (B, H, L)."""
    wide = torch.promote_types(x.dtype, torch.float32)
    if selection == "embed":
        return x[..., column].to(wide)
    return (x.abs() if selection == "abs" else x).sum(-1, dtype=wide)


def top_indices(
    scores: Tensor, m: int, keep: Tensor | None = None, force_first: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The m largest scores among the real tokens, as `select_indices` returns them.

    Args:
        scores: (B, H, L).
        m: how many.
        keep: (B, L) bool; no sample without any True.
        force_first: the first real token counts as the best.
    """
    scores = scores.nan_to_num(nan=torch.finfo(scores.dtype).min)
    if keep is not None:
        scores = scores.masked_fill(~keep[:, None], -torch.inf)
    if force_first:
        first = torch.zeros_like(scores[..., :1], dtype=torch.long)
        if keep is not None:
            first = first + keep.long().argmax(1)[:, None, None]
        scores = scores.scatter(-1, first, torch.inf)
    chosen = _largest(scores, min(m, scores.shape[-1]))
    ordinal = (chosen if keep is None else chosen & keep[:, None]).cumsum(-1)
    place = torch.arange(1, min(m, scores.shape[-1]) + 1, device=scores.device).expand(
        *scores.shape[:2], -1
    )
    if keep is None:
        return torch.searchsorted(ordinal, place.contiguous()), None
    count = keep.sum(1)[:, None, None]
    return torch.searchsorted(ordinal, place.minimum(count)), place <= count


def _largest(scores: Tensor, m: int) -> Tensor:
    """(B, H, L) bool: the m largest; of equal ones, which are common in bf16, the earlier, whatever
    the length.

    In linear time, unlike a stable sort, and seven times faster than one at 4096 tokens.
    """
    least = scores.topk(m, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    above = scores > least
    level = scores == least
    room = m - above.sum(-1, keepdim=True)
    return above | (level & (level.cumsum(-1) <= room))


def spaced_indices(
    length: int,
    m: int,
    selection: Selection,
    keep: Tensor | None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Tokens at regular distances, by their place among the real ones.

    Args:
        length: L.
        m: how many.
        selection: "step", "step_full" or "linspace".
        keep: (B, L) bool; no sample without any True. None when all are real: the result has B = 1.
        device: where to make them.

    Returns:
        indices (B, p) and which of them count (B, p), or None where all do.
    """
    width = min(m, length)
    if selection == "step_full":
        if keep is not None:
            width = min(2 * m - 1, length)
        else:
            width = -(-length // max(length // m, 1))
    place = torch.arange(width, device=device)[None]
    if keep is None:
        return (
            place * length // width if selection == "linspace" else place * max(length // m, 1)
        ), None
    count = keep.sum(1, keepdim=True)
    if selection == "linspace":
        counted = place < count
        rank = place * count // count.clamp_max(m)
    else:
        rank = place * (count // m).clamp_min(1)
        counted = rank < count
    # The token of rank r is the first with r + 1 real ones up to it.
    index = torch.searchsorted(keep.long().cumsum(1).contiguous(), (rank + 1).minimum(count))
    return _last_repeated(index, counted), counted


def _last_repeated(index: Tensor, counted: Tensor) -> Tensor:
    """Picks that do not count, which come last, replaced by the last one that does."""
    place = torch.arange(index.shape[-1], device=index.device)
    return index.gather(-1, place.minimum(counted.sum(-1, keepdim=True) - 1))


def _fixed_scores(rows: Tensor, keep: Tensor | None, seed: int | Tensor) -> Tensor:
    """(B, H, L): numbers that look random and depend on seed, head, n and a token's place among
    the real ones.
    """
    batch, heads, length = rows.shape[:3]
    if keep is None:
        keep = torch.ones(1, length, dtype=torch.bool, device=rows.device)
    head = torch.arange(heads, device=rows.device)[:, None]
    key = scramble(
        scramble(head + scramble(torch.as_tensor(seed, device=rows.device) % 2**32))
        + keep.sum(1)[:, None, None]
    )
    rank = keep.long().cumsum(1)[:, None] - 1
    return scramble(key ^ rank.clamp_min(0)).double().expand(batch, heads, length)


def scramble(x: Tensor) -> Tensor:
    """A well-mixed 32-bit hash of whole numbers in 0 .. 2^32 - 1 (int64, no overflow)."""
    for _ in range(2):
        x = ((x >> 16) ^ x) * 0x45D9F3B & 0xFFFFFFFF
    return (x >> 16) ^ x
