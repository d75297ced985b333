"""CUR attention: out = C U+ (R V), three thin softmax matrices instead of the whole one.

    C = f(s Q Kh^T)  (Lq, r)      U = f(s Qh Kh^T)  (p, r)      R = f(s Qh K^T)  (p, Lk)

with Qh, Kh the selected rows of Q and K, and f the softmax of a row (C's over the selected keys
alone) or Mega's Laplace function.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, Ev value width, p and r
selected queries, keys.
Reference: paper Eq. 3 and Algorithm 1 (which leaves out s; its Eq. 1 has it). Laplace: Ma et al.
2023, Mega, Eq. 16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from subquad_plugins.numerics.landmarks import Function, landmark_attention
from subquad_plugins.numerics.pinv import Start, exact_inverse, pseudo_inverse, ridge_inverse
from subquad_plugins.numerics.tensors import take_rows, wide

Inverse = Literal["iterative", "exact", "ridge"]
Masks = Tensor | tuple[Tensor | None, Tensor | None] | None


def cur_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_idx: Tensor,
    k_idx: Tensor,
    *,
    key_keep: Tensor | None = None,
    picks_keep: Masks = None,
    iterations: int = 6,
    pinv: Inverse = "iterative",
    start: Start = "norms",
    through_start: bool = True,
    ridge: float = 1e-3,
    copy_rows: bool = False,
    renormalise: bool = False,
    function: Function = "softmax",
    scale: float | Tensor | None = None,
    bias: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Attention through selected queries and keys.

    Args:
        q: (B, H, Lq, E).
        k: (B, H, Lk, E).
        v: (B, H, Lk, Ev).
        q_idx: (B, H, p), selected rows of q, in any order.
        k_idx: (B, H, r), selected rows of k; real tokens.
        key_keep: (B, Lk) bool, True = real token.
        picks_keep: which picks count, bool: (B, H, p) for both, or one each for q_idx and k_idx
            (None: all).
        iterations: of `pseudo_inverse`.
        pinv: "iterative", "exact" (singular values) or "ridge".
        start: of `pseudo_inverse`.
        through_start: of `pseudo_inverse`.
        ridge: of `ridge_inverse`.
        copy_rows: the outputs of selected queries are their exact rows R V.
        renormalise: see `landmark_attention`.
        function: see `landmark_attention`.
        scale: see `landmark_attention`.
        bias: added to the scores: its columns k_idx, (B or 1, H or 1, Lq, r), and its rows q_idx,
            (.., p, Lk).

    Returns:
        (B, H, Lq, Ev), dtype of v.
    """
    largest = max(q_idx.shape[-1], k_idx.shape[-1])
    rtol = largest * torch.finfo(wide(q).dtype).eps
    q_keep, k_keep = picks_keep if isinstance(picks_keep, tuple) else (picks_keep, picks_keep)
    out, rows = landmark_attention(
        q,
        k,
        v,
        q_idx,
        k_idx,
        _inverse(pinv, iterations, start, through_start, rtol, ridge),
        key_keep=key_keep,
        q_hat_keep=q_keep,
        k_hat_keep=k_keep,
        renormalise=renormalise,
        function=function,
        scale=scale,
        precise=pinv != "iterative",
        bias=None if bias is None else (*bias, _middle(bias[0], q_idx)),
    )
    return put_rows(out, rows, q_idx, q_keep) if copy_rows else out


def _inverse(
    pinv: Inverse, iterations: int, start: Start, through_start: bool, rtol: float, ridge: float
) -> Callable[[Tensor], Tensor]:
    if pinv == "exact":
        # Made in fp64, but C and R are not: singular values below their rounding are left out.
        return partial(exact_inverse, rtol=rtol)
    if pinv == "ridge":
        return partial(ridge_inverse, ridge=ridge)
    return partial(pseudo_inverse, iterations=iterations, start=start, through_start=through_start)


def _middle(columns: Tensor, q_idx: Tensor) -> Tensor:
    """The bias of U, (B, H, p, r): the rows q_idx of that of C."""
    return take_rows(columns.expand(*q_idx.shape[:2], -1, -1), q_idx)


def put_rows(out: Tensor, rows: Tensor, index: Tensor, keep: Tensor | None = None) -> Tensor:
    """`out` with given rows in place of its own.

    Args:
        out: (B, H, L, E).
        rows: (B, H, m, E).
        index: (B, H, m); a place that occurs more than once must be given the same row each time.
        keep: (B, H, m) bool, which of them to put; the first one must count.
    """
    if keep is not None:
        slot = torch.arange(index.shape[-1], device=index.device).where(keep, 0)
        index = index.gather(-1, slot)
        rows = rows.gather(2, slot[..., None].expand_as(rows))
    # The gradient of a place reaches every row put there; sharing it among them makes it whole
    # again.
    copies = (index[..., None] == index[..., None, :]).sum(-1)[..., None]
    shared = rows / copies
    rows = shared + (rows - shared).detach()
    return out.scatter(2, index[..., None].expand_as(rows), rows.to(out.dtype))
