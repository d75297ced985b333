"""Attention through landmarks: few rows that stand for those of Q and K, picked (CUR) or means of
segments (Nystrom).

    C = f(s Q Kh^T)  (Lq, r)      U = f(s Qh Kh^T)  (p, r)      R = f(s Qh K^T)  (p, Lk)
    out = C U+ (R V)

U and its inverse are computed in fp32 at least, also under autocast. C and R are never made for
softmax, so time and memory grow with L. Operation "landmarks.attention": the reference makes C W
and R V with two calls of torch's fused attention; "triton" is Flash-CUR, all of it in one function
that reads each token once a pass (`landmark_kernel.py`), and "triton-tiles" the same with up to 256
landmarks, which runs only where it is forced.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, Ev value width, p and r
landmarks of Q, K.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.launching import FORMATS, fitting_mask, kernels_run
from subquad_plugins.numerics.pinv import pseudo_inverse
from subquad_plugins.numerics.places import places_of
from subquad_plugins.numerics.tensors import laplace, take_rows, wide

Function = Literal["softmax", "laplace"]

WIDEST_HEAD = 128
"""Head width that the kernels' tiles still fit for."""

NARROW_HEAD = 64
"""Width in half precision up to which registers hold the most landmarks."""

MOST_LANDMARKS = 256
"""Of narrow heads, of others half as many: a row of U and its gradient fit the registers."""

MOST_NUMBERS = 4096
"""Of all landmarks of another head in float32, twice as many in half precision: they stay in the
chip.
"""

SMALLEST_SUM = 0.01
"""Row sums of C U+ R below this are taken for it when rows are renormalised. At the logits of a
fresh model they lie between 0.5 and 1.3, but with large ones they come down to zero and below.
"""


def segment_means(
    x: Tensor, count: int, keep: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Means of `count` segments of each sample's own length, as even as whole numbers allow.

    Segment i has the real tokens floor(i n / count) to floor((i + 1) n / count) of n; one of n <
    count may have none.

    Args:
        x: (B, H, L, E).
        count: segments r.
        keep: (B, L) bool, True = real token; in a sample without any, all count.

    Returns:
        means (B, H, r, E), 0 of no token, and which segments have one, (B, 1, r) bool; None where
        all do.
    """
    batch, _, length, _ = x.shape
    if keep is not None:
        keep = keep | ~keep.any(1, keepdim=True)
    if keep is None and length % count == 0:
        return x.unflatten(2, (count, -1)).mean(3), None
    if keep is None:
        real = torch.full((batch,), length, device=x.device)
    else:
        real = keep.sum(1)
    ends = torch.arange(count + 1, device=x.device) * real[:, None] // count
    sizes = ends.diff(dim=1)
    place = ends[:, :-1, None] + torch.arange(-(-length // count), device=x.device)
    there = place < ends[:, 1:, None]
    place = place.clamp_max(length - 1).flatten(1)
    if keep is not None:
        place = places_of(keep).order.gather(1, place)
    rows = take_rows(x, place[:, None]).unflatten(2, there.shape[1:])
    means = (
        rows.masked_fill(~there[:, None, ..., None], 0).sum(3)
        / sizes.clamp_min(1)[:, None, :, None]
    )
    return means, None if keep is None and length >= count else sizes[:, None] > 0


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
    """f(s Q Kh^T) invert(f(s Qh Kh^T)) f(s Qh K^T) V for given landmarks: rows of Q and K, or means
    of segments.

    Args:
        q: (B, H, Lq, E).
        k: (B, H, Lk, E).
        v: (B, H, Lk, Ev).
        q_hat: (B, H, p, E), or (B, H, p) whole numbers: rows of q.
        k_hat: (B, H, r, E), or (B, H, r) whole numbers: rows of k.
        invert: makes the (.., r, p) pseudo-inverse of a (.., p, r) matrix, keeping zero rows and
            columns apart.
        key_keep: (B, Lk) bool, True = real token.
        q_hat_keep: (B, H, p) bool, True = this landmark is there.
        k_hat_keep: (B, H, r) bool.
        renormalise: divide by the row sums C (Z 1) of the approximation, which are 1 for an exact
            inverse of an invertible U, and less after few iterations; our extension. Softmax only.
        function: f. "softmax" of each row, or "laplace": 0.5 erfc((0.707107 - x) / (0.282095 sqrt
            2)), where keys that are padding get 0.
        scale: s; a number, or a tensor such as (B, 1, 1, 1). Default: E^-1/2 for softmax; for
            Laplace 1 / (number of a sample's real keys), as in Mega's code.
        bias: added to the scores of C, R and U: (.., Lq, r), (.., p, Lk), (.., p, r).
        precise: U and its inverse in fp64, all else in fp32 at least. For inverses that take small
            singular values at their word: what rounding does to them is divided by their square.

    Returns:
        (B, H, Lq, Ev), dtype of v, and R V, (B, H, p, Ev).

    Raises:
        ValueError: renormalise with Laplace, whose rows have no sum to go back to.
    """
    if renormalise and function == "laplace":
        raise ValueError(
            "renormalise needs function softmax: rows of Laplace attention have no fixed sum"
        )
    if key_keep is not None:
        key_keep = key_keep | ~key_keep.any(1, keepdim=True)
    given = Given(
        q_hat, k_hat, invert, key_keep, q_hat_keep, k_hat_keep, renormalise, function, scale, bias,
        precise,
    )  # fmt: skip
    with torch.autocast(q.device.type, enabled=False):
        return _ATTENTION(q, k, v, given)


class Given(NamedTuple):
    """Of `landmark_attention`; each sample of `key_keep` has a real token."""

    q_hat: Tensor
    k_hat: Tensor
    invert: Callable[[Tensor], Tensor]
    key_keep: Tensor | None = None
    q_hat_keep: Tensor | None = None
    k_hat_keep: Tensor | None = None
    renormalise: bool = False
    function: Function = "softmax"
    scale: float | Tensor | None = None
    bias: tuple[Tensor, Tensor, Tensor] | None = None
    precise: bool = False


def _reference(q: Tensor, k: Tensor, v: Tensor, given: Given) -> tuple[Tensor, Tensor]:
    keys = None if given.key_keep is None else given.key_keep[:, None, None]
    picks = None if given.k_hat_keep is None else given.k_hat_keep[:, :, None]
    columns, rows, middle = given.bias or (None, None, None)
    scale = given.scale
    if scale is None:
        scale = _usual_scale(given.function, k, keys)
    weigh, attend = _weights_and_attention(given.function, scale)
    q_hat, k_hat = _rows_of(q, given.q_hat), _rows_of(k, given.k_hat)
    dtype = v.dtype
    if given.precise:
        q, k, v = map(wide, (q, k, v))
    z = given.invert(_middle(weigh, q_hat, k_hat, given.q_hat_keep, picks, middle, given.precise))
    rv = attend(q_hat.to(q.dtype), k, v, mask=keys, bias=rows)
    w = z @ rv.to(z.dtype)
    k_hat = k_hat.to(k.dtype)
    if not given.renormalise:
        return attend(q, k_hat, w.to(v.dtype), mask=picks, bias=columns).to(dtype), rv.to(dtype)
    sides = weigh(q, k_hat, mask=picks, bias=columns)
    return _renormalised(sides, z, w).to(dtype), rv.to(dtype)


def _rows_of(x: Tensor, hat: Tensor) -> Tensor:
    """Landmarks (B, H, m, E) that are given, or picked from x."""
    return take_rows(x, hat) if hat.dim() == 3 else hat


def _weights_and_attention(
    function: Function, scale: float | Tensor
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """What makes the weights, and what attends by them."""
    if function == "softmax":
        return partial(_softmax, scale=scale), partial(_fused, scale=scale)
    weigh = partial(_laplace, scale=scale)
    return weigh, partial(_apply, weigh)


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
        q_hat = q_hat.double()
        k_hat = k_hat.double()
    u = weigh(q_hat, k_hat, mask=picks, bias=bias)
    if q_hat_keep is None:
        return u
    return u * q_hat_keep[..., None]


def _renormalised(sides: Tensor, z: Tensor, w: Tensor) -> Tensor:
    """C W, divided by the row sums C (Z 1)."""
    sums = (sides @ z.sum(-1, keepdim=True).to(sides.dtype)).clamp_min(SMALLEST_SUM)
    return sides @ w.to(sides.dtype) / sums


def _usual_scale(function: Function, k: Tensor, keys: Tensor | None) -> float | Tensor:
    if function == "softmax":
        return k.shape[-1] ** -0.5
    if keys is None:
        return 1 / k.shape[2]
    return 1 / keys.sum(-1, keepdim=True, dtype=wide(k).dtype)


def _softmax(
    q: Tensor, k: Tensor, *, scale: float | Tensor, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    scores = _scores(q, k, scale, bias)
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)


def _laplace(
    q: Tensor, k: Tensor, *, scale: float | Tensor, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    scores = _scores(q, k, scale, bias)
    weights = laplace(scores)
    if mask is None:
        return weights
    return weights * mask


def _scores(q: Tensor, k: Tensor, scale: float | Tensor, bias: Tensor | None) -> Tensor:
    scores = (wide(q) * scale) @ wide(k).mT
    if bias is None:
        return scores
    return scores + wide(bias)


def _apply(
    weigh: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Attention with its weights made, in fp32 at least; for what the fused kernels do not do."""
    with torch.autocast(q.device.type, enabled=False):
        return (weigh(q, k, mask=mask, bias=bias) @ wide(v)).to(v.dtype)


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Softmax attention whose weights are never kept."""
    if isinstance(scale, Tensor):
        q = q * scale
        scale = 1.0
    if bias is not None:
        bias = bias.to(v.dtype)
        if mask is None:
            mask = bias
        else:
            mask = bias.masked_fill(~mask, -torch.inf)
    # Normed queries and keys stay fp32 under autocast where values do not.
    q = q.to(v.dtype)
    k = k.to(v.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


_ATTENTION = Operation("landmarks.attention", reference=_reference)


def _fits(q: Tensor, k: Tensor, v: Tensor, given: Given) -> bool:
    """Whether the kernels take it."""
    invert = given.invert
    is_plain = (
        given.function == "softmax"
        and given.bias is None
        and not given.renormalise
        and not given.precise
        and not isinstance(given.scale, Tensor)
        and isinstance(invert, partial)
        and invert.func is pseudo_inverse
        and invert.keywords.get("start") != "batch"
    )
    if not is_plain or not kernels_run(q, k, v, *given[:2], *given[3:6]):
        return False
    heads = q.shape[:2]
    counts = given.q_hat.shape[2], given.k_hat.shape[2]
    width = max(q.shape[3], v.shape[3])
    narrow = width <= NARROW_HEAD and v.element_size() == 2
    return (
        v.dtype in FORMATS
        and k.shape[:2] == v.shape[:2] == heads
        and q.shape[3] == k.shape[3]
        and k.shape[2] == v.shape[2]
        and all(
            hat.shape == (*heads, count)
            if hat.dim() == 3
            else hat.shape == (*heads, count, q.shape[3])
            for hat, count in zip(given[:2], counts, strict=True)
        )
        and width <= WIDEST_HEAD
        and max(counts) <= (MOST_LANDMARKS if narrow else MOST_LANDMARKS // 2)
        and (narrow or max(counts) * width * v.element_size() <= 4 * MOST_NUMBERS)
        and fitting_mask(given.key_keep, v.transpose(1, 2))
        and _is_mask(given.q_hat_keep, (*heads, counts[0]))
        and _is_mask(given.k_hat_keep, (*heads, counts[1]))
    )


def _is_mask(keep: Tensor | None, shape: tuple[int, ...]) -> bool:
    return keep is None or (
        keep.dtype == torch.bool and keep.shape in (shape, (shape[0], 1, shape[2]))
    )


def _is_measured(q: Tensor, k: Tensor, v: Tensor, given: Given) -> bool:
    """Whether the kernels take it, and landmarks are as few as were measured."""
    few = max(given.q_hat.shape[2], given.k_hat.shape[2]) <= MOST_LANDMARKS // 2
    return few and _fits(q, k, v, given)


@_ATTENTION.implementation(
    "triton-tiles", chosen=False, devices=("cuda",), dtypes=FORMATS, when=_fits
)
@_ATTENTION.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_is_measured)
def _triton(q: Tensor, k: Tensor, v: Tensor, given: Given) -> tuple[Tensor, Tensor]:
    """First on CUDA up to 128 landmarks: its prototype took less than half of the reference's time
    on an H200. With more it was never measured, and runs where it is forced.
    """
    from subquad_plugins.numerics.landmark_kernel import Inverse, Landmarks

    settings = given.invert.keywords  # pyright: ignore[reportFunctionMemberAccess]
    inverse = Inverse(
        settings["iterations"],
        settings.get("start", "norms") == "norms",
        settings.get("through_start", True),
    )
    hats = [hat if hat.dim() == 3 else hat.to(v.dtype) for hat in (given.q_hat, given.k_hat)]
    return Landmarks.apply(  # pyright: ignore[reportReturnType]
        q.to(v.dtype), k.to(v.dtype), v, *hats, given.key_keep,
        *(
            keep if keep is None else keep.expand(-1, q.shape[1], -1)
            for keep in (given.q_hat_keep, given.k_hat_keep)
        ),
        inverse, given.scale or q.shape[3] ** -0.5,
    )  # fmt: skip
