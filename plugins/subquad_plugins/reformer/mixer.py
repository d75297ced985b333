"""Reformer: tokens sorted by a random hash, softmax attention within chunks of the sorted list,
rounds combined.

Queries are keys, keys have length 1. The hash of x is the index of the largest of [x R, -x R] for
random R (angular hashing). A token sees its chunk and the one before, itself only where there is
nothing else.

Causal, a token sees earlier tokens of its own bucket alone, and pairs that meet in several rounds
count once, as in the paper's equations. Departure: chunks are cut in each bucket by itself. In one
list of all buckets, as in published code, a chunk begins where the hashes of later tokens say.

Letters: B batch, H heads, L length, E head width, N rounds, C tokens of a chunk, G chunks.
Reference: Kitaev et al. 2020, section 2 (Eq. 2 to 7) and appendix A.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import take_rows, wide
from subquad_plugins.reformer import Config

_ITSELF = -1e5
"""Score of a token with itself: low, but above that of what it may not see."""


class Reformer(TokenMixer):
    """Attention among tokens of like hash. `rotations` (H, E, N, buckets / 2) are drawn once, from
    the site's seed.

    Args:
        config: see `Config`.
        site: its seed and layer fix what is drawn.
    """

    rotations: Tensor

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        self.causal = site.causal
        self.num_heads = site.num_heads
        self.query_key, self.value = (nn.Linear(site.dim, site.dim, bias=False) for _ in range(2))
        self.out = nn.Linear(site.dim, site.dim)
        generator = torch.Generator().manual_seed(1009 * site.seed + site.layer_index)
        shape = site.num_heads, site.head_dim, config.num_hashes, config.num_buckets // 2
        self.register_buffer("rotations", torch.randn(*shape, generator=generator))

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        q, v = (
            y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for y in (self.query_key(x), self.value(x))
        )
        if keep is None:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        with torch.autocast(x.device.type, enabled=False):
            mixed = self._attend(wide(q), wide(v), keep).to(v.dtype)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _attend(self, q: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        """(B, H, L, E)."""
        keys = q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * q.shape[-1] ** -0.5
        bucket = self._bucket(q, keep)
        order = bucket.argsort(dim=-1, stable=True)
        if self.causal:
            place, back = self._chunks_of_buckets(bucket, order)
        else:
            place, back = self._chunks_of_list(order)
        index = place.flatten(3).clamp_min(0)
        there = keep[:, None, None].expand(bucket.shape).gather(-1, index)
        queries, keys, values = (
            take_rows(tensor, index.flatten(2)).unflatten(2, place.shape[2:])
            for tensor in (q, keys, v)
        )
        places = self._with_before(place)
        real = self._with_before(there.view_as(place) & (place >= 0))
        if not self.config.as_published:
            real[..., 0, : -place.shape[-1]] = False
        scores = queries @ self._with_before(keys).mT
        seen = real[..., None, :]
        if self.causal:
            earlier = places[..., None, :] <= place[..., None]
            met, meets = self._meetings(bucket, place, scores.dtype)
            scores = scores - meets.clamp_min_(1).log_()
            seen = seen & earlier & met
        scores = scores.masked_fill(place[..., None] == places[..., None, :], _ITSELF)
        scores = scores.masked_fill_(~seen, torch.finfo(scores.dtype).min)
        total = scores.logsumexp(-1, keepdim=True)
        rows = (scores - total).exp_() @ self._with_before(values)
        rows = take_rows(rows.flatten(3, 4), back)
        total = total.flatten(3, 5).gather(3, back)
        return (rows * total.softmax(2)[..., None]).sum(2)

    def _bucket(self, q: Tensor, keep: Tensor) -> Tensor:
        """Of each token in each round, padding in one behind all others; (B, H, N, L)."""
        rotated = torch.einsum("bhle,henr->bhnlr", q.detach(), self.rotations.to(q.dtype))
        bucket = torch.cat([rotated, -rotated], -1).argmax(-1)
        return bucket.masked_fill(~keep[:, None, None], self.config.num_buckets)

    def _chunks_of_list(self, order: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens of each round sorted by bucket, then by place, in chunks.

        Args:
            order: (B, H, N, L), tokens in that order.

        Returns:
            The token at each place of each chunk, -1 where there is none, (B, H, N, G, C); and the
            place of each token among those, (B, H, N, L).
        """
        length = order.shape[-1]
        chunk = min(self.config.chunk, length)
        place = F.pad(order, (0, -length % chunk), value=-1).unflatten(-1, (-1, chunk))
        back = torch.empty_like(order).scatter_(
            -1, order, torch.arange(length, device=order.device).expand_as(order)
        )
        return place, back

    def _chunks_of_buckets(self, bucket: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """The same, where each bucket begins a chunk: a token's place in its bucket follows from
        earlier tokens alone.
        """
        length = order.shape[-1]
        chunk = min(self.config.chunk, length)
        buckets = self.config.num_buckets + 1
        sizes = bucket.new_zeros(*bucket.shape[:-1], buckets)
        sizes.scatter_add_(-1, bucket, torch.ones_like(bucket))
        chunks = (sizes + chunk - 1) // chunk
        # what stands before a bucket in the list, and before its first chunk
        before = sizes.cumsum(-1) - sizes
        first = (chunks.cumsum(-1) - chunks) * chunk
        sorted_bucket = bucket.gather(-1, order)
        shift = (first - before).gather(-1, sorted_bucket)
        slot = shift + torch.arange(length, device=order.device)
        count = max(2, min(length, length // chunk + buckets))
        place = order.new_full((*order.shape[:-1], count * chunk), -1).scatter_(-1, slot, order)
        back = torch.empty_like(order).scatter_(-1, order, slot)
        return place.unflatten(-1, (count, chunk)), back

    def _meetings(self, bucket: Tensor, place: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Whether the tokens of a chunk and those they look at are of one bucket, and in how many
        rounds they are; (B, H, N, G, C, 2 C).
        """
        index = place.flatten(2).clamp_min(0)
        hashes = take_rows(bucket.mT, index).unflatten(2, place.shape[2:])
        looked_at = self._with_before(hashes)
        rounds = range(bucket.shape[2])
        same = [hashes[..., n, None] == looked_at[..., None, :, n] for n in rounds]
        own = torch.stack([same[n][:, :, n] for n in rounds], 2)
        meets = same[0].to(dtype)
        for also in same[1:]:
            meets += also
        return own, meets

    def _with_before(self, x: Tensor) -> Tensor:
        """Each chunk behind the one before it, (B, H, N, G, C, ..) to (B, H, N, G, 2 C, ..); a
        chunk alone as it is.
        """
        if x.shape[3] == 1 and not self.config.as_published:
            return x
        if self.config.as_published:
            rounds = x.flatten(2, 3)
        else:
            rounds = x
        before = rounds.roll(1, 2 if self.config.as_published else 3).view_as(x)
        return torch.cat([before, x], 4)
