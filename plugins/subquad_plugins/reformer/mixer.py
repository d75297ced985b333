"""Reformer: tokens sorted by a random hash, softmax attention within chunks of the sorted list, rounds combined.

Queries are keys, keys have length 1. The hash of x is the index of the largest of [x R, -x R] for random R (angular
hashing). A token sees its chunk and the one before, itself only where there is nothing else. Never causal here: where a
chunk begins depends on the hashes of later tokens, though published code masks them within the chunk.

Letters: B batch, H heads, L length, E head width, N rounds, C tokens of a chunk, G chunks.
Reference: Kitaev et al. 2020, section 2 (Eq. 2 to 7).
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
    """Attention among tokens of like hash. `rotations` (H, E, N, buckets / 2) are drawn once, from the site's seed.

    Args:
        config: see `Config`.
        site: its seed and layer fix what is drawn.
    """

    rotations: Tensor

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config, self.num_heads = config, site.num_heads
        self.query_key, self.value = (nn.Linear(site.dim, site.dim, bias=False) for _ in range(2))
        self.out = nn.Linear(site.dim, site.dim)
        generator = torch.Generator().manual_seed(1009 * site.seed + site.layer_index)
        shape = site.num_heads, site.head_dim, config.num_hashes, config.num_buckets // 2
        self.register_buffer("rotations", torch.randn(*shape, generator=generator))

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        q, v = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in (self.query_key(x), self.value(x)))
        keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if keep is None else keep
        with torch.autocast(x.device.type, enabled=False):
            mixed = self._attend(wide(q), wide(v), keep).to(v.dtype)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _attend(self, q: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        """(B, H, L, E)."""
        length, width = q.shape[2:]
        chunk = min(self.config.chunk, length)
        keys = q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * width**-0.5
        order = self._order(q, keep)
        place = F.pad(order, (0, -length % chunk), value=-1).unflatten(-1, (-1, chunk))
        there = keep[:, None, None].expand(order.shape).gather(-1, order)
        there = F.pad(there, (0, -length % chunk)).unflatten(-1, (-1, chunk))
        index = place.flatten(2).clamp_min(0)
        queries, keys, values = (take_rows(one, index).unflatten(2, place.shape[2:]) for one in (q, keys, v))
        places, real = self._with_before(place), self._with_before(there)
        if not self.config.as_published:
            real[..., 0, :-chunk] = False
        scores = queries @ self._with_before(keys).mT
        scores = scores.masked_fill_(place[..., None] == places[..., None, :], _ITSELF)
        scores = scores.masked_fill_(~real[..., None, :], torch.finfo(scores.dtype).min)
        total = scores.logsumexp(-1, keepdim=True)
        found = (scores - total).exp_() @ self._with_before(values)
        back = torch.empty_like(order).scatter_(-1, order, torch.arange(length, device=q.device).expand_as(order))
        found = take_rows(found.flatten(3, 4), back)
        total = total.flatten(3, 5).gather(3, back)
        return (found * total.softmax(2)[..., None]).sum(2)

    def _order(self, q: Tensor, keep: Tensor) -> Tensor:
        """Tokens of each round sorted by bucket, then by place, padding last; (B, H, N, L)."""
        rotated = torch.einsum("bhle,henr->bhnlr", q.detach(), self.rotations.to(q.dtype))
        bucket = torch.cat([rotated, -rotated], -1).argmax(-1)
        bucket = bucket.masked_fill(~keep[:, None, None], self.config.num_buckets)
        return bucket.argsort(dim=-1, stable=True)

    def _with_before(self, x: Tensor) -> Tensor:
        """Each chunk behind the one before it, (B, H, N, G, C, ..) to (B, H, N, G, 2 C, ..); a chunk alone as it is."""
        if x.shape[3] == 1 and not self.config.as_published:
            return x
        rounds = x.flatten(2, 3) if self.config.as_published else x
        before = rounds.roll(1, 2 if self.config.as_published else 3).view_as(x)
        return torch.cat([before, x], 4)
