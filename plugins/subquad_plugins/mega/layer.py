"""The layer that Mega and MegaCUR share: moving average, gates, chunks and decode cache around one
attention.

    x' = norm(x);  value = silu(x' W_v);  m = silu(EMA(x') + omega x')
    [u | z | r | h] = m W;  q, k = silu(z) * scale + shift;  a = attention(q, k, value)
    out = sigmoid(u) * (silu(h + (a * silu(r)) W_o) - x)

The authors' layer is x + out, and the norm of that where they norm afterwards: see
docs/reference/mixers/mega.md.

Letters: B batch, L length, D model width, z attention width, v value width, c chunk length, G
chunks, N EMA width, T cached positions.
Reference: Ma et al. 2023, Mega, Section 3.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import Cache, TokenMixer
from subquad.plugin import Site
from subquad_plugins.mega import LayerConfig
from subquad_plugins.mega.attention import attention_weights, scaled_queries, similarity
from subquad_plugins.mega.bias import RelativeBias, RotaryBias, SimpleBias
from subquad_plugins.mega.ema import DampedEMA
from subquad_plugins.mega.norm import NORMS
from subquad_plugins.numerics.dropout import dropout


class Branches(NamedTuple):
    """What the moving average is projected to, (B, L, .) or (B, .) each, and the values."""

    update: Tensor
    q: Tensor
    k: Tensor
    reset: Tensor
    hidden: Tensor
    value: Tensor


class GatedAttention(TokenMixer):
    """Mega's layer without its residual path; `attend` is what differs between its kinds.

    Args:
        config: see `LayerConfig`.
        site: where it stands. There is one head, whatever `site.num_heads`.

    Raises:
        PluginError: the simple bias has no size: neither a longest sequence nor `max_positions` nor
            `chunk_size`.
    """

    def __init__(self, config: LayerConfig, site: Site):
        super().__init__()
        self.config = config
        self.causal = site.causal
        self.max_len = site.max_len
        width, values = config.widths(site.dim)
        self.sizes = (site.dim, width, values, site.dim)
        self.norm = NORMS[config.norm](site.dim)
        both = config.bidirectional and not site.causal
        self.ema = DampedEMA(
            site.dim, config.ema_dim, bidirectional=both, truncation=config.truncation
        )
        self.value = nn.Linear(site.dim, values)
        self.branches = nn.Linear(site.dim, sum(self.sizes))
        self.out = nn.Linear(values, site.dim)
        self.scale = nn.Parameter(torch.randn(2, width) * 0.02)
        self.shift = nn.Parameter(torch.zeros(2, width))
        self.bias: RelativeBias = _bias(config, site, width)
        for linear in (self.value, self.branches, self.out):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor
    ) -> Tensor:
        """Attention within each chunk.

        Args:
            q: (B, G, c, z).
            k: (B, G, c, z).
            value: (B, G, c, v).
            keep: (B, G, c) bool, or None.
            bias: (2 c - 1,), by distance: see `RelativeBias.distances`.

        Returns:
            (B, G, c, v).
        """

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        if keep is None or not self.config.chunk_size:
            return self._mix(x, keep)[0]
        # Chunks are counted from the first real token, so that padding in front moves no border.
        first = keep.int().argmax(1)
        return _rolled(self._mix(_rolled(x, first), _rolled(keep, first))[0], -first)

    @property
    def caches(self) -> bool:
        """Causal, and the moving average not cut off: its recurrence cannot forget a single
        token.
        """
        untruncated = not self.config.truncation or 0 < self.max_len <= self.config.truncation
        return self.causal and untruncated

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        if not self.caches:
            return super().prefill(x, keep=keep)
        out, branches = self._mix(x, keep)
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        keys = self._current(branches.k, lengths)
        values = self._current(branches.value, lengths)
        state = self.ema.start(self.norm(x), keep)
        return out, {"ema": state, "keys": keys, "values": values, "position": lengths}

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        if not self.caches:
            return super().step(x, cache)
        normed = self.norm(x)
        averaged, state = self.ema.step(normed, cache["ema"])
        branches = self._branches(normed, averaged)
        position = cache["position"]
        if self.config.chunk_size:
            place = position % self.config.chunk_size
        else:
            place = position
        capacity = self._capacity(place, cache["keys"].shape[1])
        keys = _put(cache["keys"], branches.k, place, capacity)
        values = _put(cache["values"], branches.value, place, capacity)
        mixed = self._attend_one(branches.q, keys, values, place)
        return self._combine(x, branches, mixed), {
            "ema": state,
            "keys": keys,
            "values": values,
            "position": position + 1,
        }

    def _mix(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, Branches]:
        normed = self.norm(x)
        branches = self._branches(
            normed, self._dropped(self.ema(normed, keep), self.config.dropout)
        )
        return self._combine(x, branches, self._attend_chunks(branches, keep)), branches

    def _branches(self, normed: Tensor, averaged: Tensor) -> Branches:
        value = F.silu(self.value(normed))
        update, z, reset, hidden = self.branches(averaged.to(value.dtype)).split(self.sizes, -1)
        scaled = F.silu(z)[..., None, :] * self.scale + self.shift
        q, k = scaled.to(value.dtype).unbind(-2)
        return Branches(torch.sigmoid(update), q, k, F.silu(reset), hidden, value)

    def _combine(self, x: Tensor, branches: Branches, mixed: Tensor) -> Tensor:
        hidden = F.silu(branches.hidden + self.out(mixed * branches.reset))
        return (branches.update * (self._dropped(hidden, self.config.dropout) - x)).to(
            branches.value.dtype
        )

    def _attend_chunks(self, branches: Branches, keep: Tensor | None) -> Tensor:
        """(B, L, v): the sequence cut into chunks, the last one filled up with padding, and put
        together again.
        """
        length = branches.q.shape[1]
        size = min(self.config.chunk_size or length, length)
        missing = -length % size
        if missing and keep is None:
            keep = branches.q.new_ones(branches.q.shape[:2], dtype=torch.bool)
        value = self._dropped(branches.value, self.config.value_dropout)
        q, k, value = (
            F.pad(tensor, (0, 0, 0, missing)).unflatten(1, (-1, size))
            for tensor in (branches.q, branches.k, value)
        )
        if keep is not None:
            keep = F.pad(keep, (0, missing)).unflatten(1, (-1, size))
        return self.attend(q, k, value, keep, self.bias.distances(size)).flatten(1, 2)[:, :length]

    def _attend_one(self, q: Tensor, keys: Tensor, values: Tensor, place: Tensor) -> Tensor:
        """(B, v): attention of the token at `place` (B,) to the cached ones up to itself."""
        capacity = keys.shape[1]
        lags = torch.arange(capacity, device=q.device) - place[:, None]  # (B, T)
        visible = (lags <= 0)[:, None]
        bias = self.bias.distances(capacity)[(lags + capacity - 1).clamp_max(capacity - 1)][:, None]
        q = scaled_queries(q[:, None], visible, capacity, self.config.attention)
        weights = attention_weights(similarity(q, keys, bias), visible, self.config.attention)
        return (weights.to(values.dtype) @ values)[:, 0]

    def _current(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """The tokens that the next one may see, (B, T, .): all, or those of the chunk under way,
        from its start.
        """
        size = self.config.chunk_size
        if not size:
            return tokens
        places = (
            torch.arange(min(size, tokens.shape[1]), device=tokens.device)
            + (lengths // size * size)[:, None]
        )
        places = places.clamp_max(tokens.shape[1] - 1)[..., None].expand(-1, -1, tokens.shape[2])
        return tokens.gather(1, places)

    def _capacity(self, place: Tensor, cached: int) -> int:
        """Positions that the cache must have: one more than now, up to the most there can be."""
        if self.config.chunk_size:
            return min(cached + 1, self.config.chunk_size)
        most = self.bias.limit
        if most is None or cached < most:
            return cached + 1
        if int(place.max()) >= most:
            raise PluginError(
                f"a sequence of {int(place.max()) + 1} tokens is too long for a "
                f"relative bias of {most} positions"
            )
        return most

    def _dropped(self, x: Tensor, rate: float) -> Tensor:
        if rate and self.training:
            return dropout(x, rate)
        return x


def _bias(config: LayerConfig, site: Site, width: int) -> RelativeBias:
    if config.bias == "rotary":
        return RotaryBias(width)
    limit = config.chunk_size or config.max_positions or site.max_len
    if not limit:
        raise PluginError(
            "the simple relative bias needs a size, and the longest sequence is not known: "
            "set max_positions, or bias rotary"
        )
    return SimpleBias(limit)


def _rolled(x: Tensor, by: Tensor) -> Tensor:
    """Each sample of (B, L, ...) moved `by` (B,) places towards the front, around the end."""
    length = x.shape[1]
    places = (torch.arange(length, device=x.device) + by[:, None]) % length
    return x.gather(1, places.reshape(*places.shape, *[1] * (x.ndim - 2)).expand_as(x))


def _put(cached: Tensor, new: Tensor, place: Tensor, capacity: int) -> Tensor:
    """A copy of (B, T, .) with `capacity` places and `new` (B, .) at each sample's `place`."""
    grown = F.pad(cached, (0, 0, 0, capacity - cached.shape[1]))
    return grown.scatter(
        1, place[:, None, None].expand(-1, 1, grown.shape[2]), new[:, None].to(grown.dtype)
    )
