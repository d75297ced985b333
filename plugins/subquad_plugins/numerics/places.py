"""Where the real tokens of padded samples are: padding may stand before, after or between them.

Letters: B batch, H heads, E head width, L length with padding, N_b number of real tokens of sample
b, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from subquad.errors import PluginError


class Places(NamedTuple):
    """Real tokens by place.

    Attributes:
        lengths: N_b, (B,) int64, at least 1, so that a sample without real tokens divides by
            nothing forbidden.
        order: (B, L), tokens with the real ones first, in their order.
        rank: (B, L), how many real tokens stand before each token; at padding a number below N_b
            without meaning.
    """

    lengths: Tensor
    order: Tensor
    rank: Tensor


def places_of(keep: Tensor) -> Places:
    """Places of the real tokens in `keep`, (B, L) bool."""
    rank = keep.long().cumsum(1)
    tokens = torch.arange(keep.shape[1], device=keep.device).expand(keep.shape)
    # Where each token goes. A stable sort of the mask would be slower.
    place = torch.where(keep, rank - 1, rank[:, -1:] + tokens - rank)
    return Places(
        keep.sum(1).clamp_min(1),
        torch.empty_like(place).scatter(1, place, tokens),
        (rank - 1).clamp_min(0),
    )


def take_tokens(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b, k]]: (B, L, ..) and (B, K) to (B, K, ..). Of whole rows, many times quicker
    than `gather`.
    """
    offsets = torch.arange(x.shape[0], device=x.device)[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (index + offsets).flatten()).unflatten(0, index.shape)


def to_front(x: Tensor, keep: Tensor, places: Places) -> Tensor:
    """Real tokens moved to the front of each sample, zeros behind them; (B, L, C)."""
    return take_tokens(x.masked_fill(~keep[..., None], 0.0), places.order)


def among_real(
    name: str,
    attend: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
) -> Tensor:
    """`attend(q, k, v, lengths)` with each sample's real tokens first, (B,) many, and its output
    put back in place.

    Args:
        name: who attends, for the message.
        attend: takes and returns (B, H, L, E).
        q: (B, H, L, E).
        k: (B, H, L, E).
        v: (B, H, L, Ev).
        keep: (B, L) bool, True = real token; None when all are real.

    Returns:
        (B, H, L, Ev), meaningless at padding.

    Raises:
        PluginError: q and k have different lengths.
    """
    if q.shape[2] != k.shape[2]:
        raise PluginError(
            f"{name} needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}"
        )
    if keep is None:
        return attend(q, k, v, torch.full(q.shape[:1], q.shape[2], device=q.device))
    places = places_of(keep)
    q, k, v = (
        take_tokens(tensor.transpose(1, 2), places.order).transpose(1, 2) for tensor in (q, k, v)
    )
    return take_tokens(attend(q, k, v, places.lengths).transpose(1, 2), places.rank).transpose(1, 2)
