"""CUR attention: out = C U+ (R V), three thin softmax matrices instead of the whole one.

    C = f(s Q Kh^T)  (Lq, r)      U = f(s Qh Kh^T)  (p, r)      R = f(s Qh K^T)  (p, Lk)

with Qh, Kh the selected rows of Q and K, and f the softmax of a row (C's over the selected keys alone) or Mega's
Laplace function. C and R are never made for softmax: C W and R V are two calls of torch's fused attention, so time and
memory grow with L. U and its inverse are computed in fp32 at least, also under autocast.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, Ev value width, p and r selected queries, keys.
Reference: paper Eq. 3 and Algorithm 1 (which leaves out s; its Eq. 1 has it). Laplace: Ma et al. 2023, Mega, Eq. 16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.numerics.pinv import Start, exact_inverse, pseudo_inverse, ridge_inverse
from subquad_plugins.numerics.tensors import laplace, take_rows, wide

Function = Literal["softmax", "laplace"]
Inverse = Literal["iterative", "exact", "ridge"]
Masks = Tensor | tuple[Tensor | None, Tensor | None] | None

SMALLEST_SUM = 0.01
"""Row sums of C U+ R below this are taken for it when rows are renormalised. At the logits of a fresh model they lie
between 0.5 and 1.3, but with large ones they come down to zero and below."""


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
        picks_keep: which picks count, bool: (B, H, p) for both, or one each for q_idx and k_idx (None: all).
        iterations: of `pseudo_inverse`.
        pinv: "iterative", "exact" (singular values) or "ridge".
        start: of `pseudo_inverse`.
        through_start: of `pseudo_inverse`.
        ridge: of `ridge_inverse`.
        copy_rows: the outputs of selected queries are their exact rows R V.
        renormalise: see `landmark_attention`.
        function: see `landmark_attention`.
        scale: see `landmark_attention`.
        bias: added to the scores: its columns k_idx, (B or 1, H or 1, Lq, r), and its rows q_idx, (.., p, Lk).

    Returns:
        (B, H, Lq, Ev), dtype of v.
    """
    # The exact inverse is made in fp64, but C and R are not: singular values below their rounding are left out.
    rtol = max(q_idx.shape[-1], k_idx.shape[-1]) * torch.finfo(wide(q).dtype).eps
    invert = {
        "iterative": partial(pseudo_inverse, iterations=iterations, start=start, through_start=through_start),
        "exact": partial(exact_inverse, rtol=rtol),
        "ridge": partial(ridge_inverse, ridge=ridge),
    }[pinv]
    q_keep, k_keep = picks_keep if isinstance(picks_keep, tuple) else (picks_keep, picks_keep)
    out, rows = landmark_attention(
        q,
        k,
        v,
        take_rows(q, q_idx),
        take_rows(k, k_idx),
        invert,
        key_keep=key_keep,
        q_hat_keep=q_keep,
        k_hat_keep=k_keep,
        renormalise=renormalise,
        function=function,
        scale=scale,
        precise=pinv != "iterative",
        bias=None if bias is None else (*bias, take_rows(bias[0].expand(*q_idx.shape[:2], -1, -1), q_idx)),
    )
    return put_rows(out, rows, q_idx, q_keep) if copy_rows else out


def landmark_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_hat: Tensor,
    k_hat: Tensor,
    invert: Callable[[Tensor], Tensor],
    *,
    key_keep: Tensor | None = None,
    q_hat_keep: Tensor | None = None,
    k_hat_keep: Tensor | None = None,
    renormalise: bool = False,
    function: Function = "softmax",
    scale: float | Tensor | None = None,
    bias: tuple[Tensor, Tensor, Tensor] | None = None,
    precise: bool = False,
) -> tuple[Tensor, Tensor]:
    """f(s Q Kh^T) invert(f(s Qh Kh^T)) f(s Qh K^T) V for given landmarks: rows of Q and K, or means of segments.

    Args:
        q: (B, H, Lq, E).
        k: (B, H, Lk, E).
        v: (B, H, Lk, Ev).
        q_hat: (B, H, p, E).
        k_hat: (B, H, r, E).
        invert: makes the (.., r, p) pseudo-inverse of a (.., p, r) matrix, keeping zero rows and columns apart.
        key_keep: (B, Lk) bool, True = real token.
        q_hat_keep: (B, H, p) bool, True = this landmark is there.
        k_hat_keep: (B, H, r) bool.
        renormalise: divide by the row sums C (Z 1) of the approximation, which are 1 for an exact inverse of an
            invertible U, and less after few iterations; our extension. Softmax only.
        function: f. "softmax" of each row, or "laplace": 0.5 erfc((0.707107 - x) / (0.282095 sqrt 2)), where keys
            that are padding get 0.
        scale: s; a number, or a tensor such as (B, 1, 1, 1). Default: E^-1/2 for softmax; for Laplace
            1 / (number of a sample's real keys), as in Mega's code.
        bias: added to the scores of C, R and U: (.., Lq, r), (.., p, Lk), (.., p, r).
        precise: U and its inverse in fp64, all else in fp32 at least. For inverses that take small singular values at
            their word: what rounding does to them is divided by their square.

    Returns:
        (B, H, Lq, Ev), dtype of v, and R V, (B, H, p, Ev).

    Raises:
        ValueError: renormalise with Laplace, whose rows have no sum to go back to.
    """
    if renormalise and function == "laplace":
        raise ValueError("renormalise needs function softmax: rows of Laplace attention have no fixed sum")
    keys = None if key_keep is None else (key_keep | ~key_keep.any(1, keepdim=True))[:, None, None]
    picks = None if k_hat_keep is None else k_hat_keep[:, :, None]
    columns, rows, middle = bias or (None, None, None)
    scale = _usual_scale(function, k, keys) if scale is None else scale
    weigh = partial(_softmax if function == "softmax" else _laplace, scale=scale)
    attend = partial(_fused, scale=scale) if function == "softmax" else partial(_apply, weigh)

    with torch.autocast(q.device.type, enabled=False):
        dtype = v.dtype
        if precise:
            q, k, v = wide(q), wide(k), wide(v)
        z = invert(_middle(weigh, q_hat, k_hat, q_hat_keep, picks, middle, precise))
        rv = attend(q_hat.to(q.dtype), k, v, mask=keys, bias=rows)
        w = z @ rv.to(z.dtype)
        k_hat = k_hat.to(k.dtype)
        if not renormalise:
            return attend(q, k_hat, w.to(v.dtype), mask=picks, bias=columns).to(dtype), rv.to(dtype)
        sides = weigh(q, k_hat, mask=picks, bias=columns)
        sums = (sides @ z.sum(-1, keepdim=True).to(sides.dtype)).clamp_min(SMALLEST_SUM)
        return (sides @ w.to(sides.dtype) / sums).to(dtype), rv.to(dtype)


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
        index, rows = index.gather(-1, slot), rows.gather(2, slot[..., None].expand_as(rows))
    # The gradient of a place reaches every row put there; sharing it among them makes it whole again.
    copies = (index[..., None] == index[..., None, :]).sum(-1)[..., None]
    shared = rows / copies
    rows = shared + (rows - shared).detach()
    return out.scatter(2, index[..., None].expand_as(rows), rows.to(out.dtype))


def _middle(
    weigh: Callable[..., Tensor],
    q_hat: Tensor,
    k_hat: Tensor,
    q_hat_keep: Tensor | None,
    picks: Tensor | None,
    bias: Tensor | None,
    precise: bool,
) -> Tensor:
    """U (B, H, p, r), with zeros in the rows and columns of landmarks that are not there."""
    if precise:
        q_hat, k_hat = q_hat.double(), k_hat.double()
    u = weigh(q_hat, k_hat, mask=picks, bias=bias)
    return u if q_hat_keep is None else u * q_hat_keep[..., None]


def _usual_scale(function: Function, k: Tensor, keys: Tensor | None) -> float | Tensor:
    if function == "softmax":
        return k.shape[-1] ** -0.5
    return 1 / k.shape[2] if keys is None else 1 / keys.sum(-1, keepdim=True, dtype=wide(k).dtype)


def _softmax(q: Tensor, k: Tensor, *, scale: float | Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    scores = _scores(q, k, scale, bias)
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)


def _laplace(q: Tensor, k: Tensor, *, scale: float | Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    scores = _scores(q, k, scale, bias)
    weights = laplace(scores)
    return weights if mask is None else weights * mask


def _scores(q: Tensor, k: Tensor, scale: float | Tensor, bias: Tensor | None) -> Tensor:
    scores = (wide(q) * scale) @ wide(k).mT
    return scores if bias is None else scores + wide(bias)


def _apply(
    weigh: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Attention with its weights made, in fp32 at least; for what the fused kernels do not do."""
    with torch.autocast(q.device.type, enabled=False):
        return (weigh(q, k, mask=mask, bias=bias) @ wide(v)).to(v.dtype)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | Tensor, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Softmax attention on torch's fused kernels."""
    if isinstance(scale, Tensor):
        q, scale = q * scale, 1.0
    if bias is not None:
        bias = bias.to(v.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    # Normed queries and keys stay fp32 under autocast where values do not.
    q, k = q.to(v.dtype), k.to(v.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
