"""Causal Fourier mixing as a token mixer, with a cache of past tokens for decoding.

The sums are computed in fp32 at least, also under autocast. Positions count real tokens only, so
padding may stand anywhere: real tokens are moved to the front, mixed and moved back.

Letters: B batch, L length, D width, N period, C tokens in the cache.
Reference: MDFWA, Sec. 3.2. Departures: N is a constant, as the prefix property needs; learned
frequencies stay within half a step of n (0.5 tanh), where interpolation between whole ones works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.causal_fourier import LEARNED_CROSSOVER, Config
from subquad_plugins.causal_fourier.chirp import (
    causal_fourier,
    is_dense,
    learned_causal_fourier,
    source_rows,
)
from subquad_plugins.causal_fourier.dense import interpolated_row_weights, row_scale, row_weights
from subquad_plugins.causal_fourier.product import wide_product
from subquad_plugins.numerics.places import places_of, take_tokens, to_front
from subquad_plugins.numerics.tensors import wide


class CausalFourier(TokenMixer):
    """Causal Fourier mixing. `turn` is the period as a number; the buffer `period` marks saved
    weights with it.

    Args:
        config: see `Config`.
        site: where it stands; without a `period` in the config its `max_len` is the period.
        first: places of another sequence in front, which the period then counts too; see `source`.

    Raises:
        PluginError: neither is known.
    """

    def __init__(self, config: Config, site: Site, first: int = 0):
        super().__init__()
        self.config = config
        self.first = first
        self.turn = config.period or (site.max_len and site.max_len + first)
        if not self.turn:
            raise PluginError(
                "causal_fourier: set period, as the length of the longest sequence is not known"
            )
        # In the state, since weights of another period load but compute something else.
        self.register_buffer("period", torch.tensor(self.turn))
        self.register_load_state_dict_pre_hook(_refuse_other_period)
        if config.projections == "both":
            self.value = nn.Linear(site.dim, site.dim)
        else:
            self.value = None
        if config.projections != "none":
            self.out = nn.Linear(site.dim, site.dim)
        else:
            self.out = None
        if config.frequencies == "learned":
            self.offset = nn.Parameter(torch.zeros(self.longest))
        else:
            self.offset = None

    @property
    def longest(self) -> int:
        """Tokens that the period has room for."""
        return self.turn - self.first

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        self._refuse_beyond_period(x.shape[1])
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        with torch.autocast(x.device.type, enabled=False):
            if keep is None:
                mixed = self._mix(value)
            else:
                places = places_of(keep)
                mixed = take_tokens(self._mix(to_front(value, keep, places)), places.rank)
        if self.out is None:
            return mixed
        return self.out(mixed)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Frequencies are no weights: without decay, which would pull them back to whole
        numbers.
        """
        if self.offset is None:
            return {}
        return {"offset": ParameterRule(weight_decay=False)}

    def delta(self, positions: Tensor | slice = slice(None)) -> Tensor:
        """How far each position's frequency is from the position, in -1/2..1/2; of all unless
        some are chosen.
        """
        assert self.offset is not None
        return 0.5 * torch.tanh(self.offset[positions])

    def source(self, x: Tensor) -> Tensor:
        """What a sequence in front, (B, `first` or fewer, D), adds to each token's sum: (B,
        `longest`, D).
        """
        if self.offset is None:
            delta = None
        else:
            delta = self.delta()
        return source_rows(x, self.turn, self.first, self.config.norm, delta, self.config.terms)

    @property
    def caches(self) -> bool:
        return True

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        if self.value is None:
            value = x
        else:
            value = self.value(x)
        if keep is None:
            position = torch.full(x.shape[:1], x.shape[1], device=x.device)
            return self.forward(x), {"past": value.clone(), "position": position}
        lengths = keep.sum(1)
        # As long as the longest sample: from here on it grows by a row with each step, and nobody
        # need look.
        longest = max(lengths.tolist(), default=0)
        past = value.masked_fill(~keep[..., None], 0.0)[:, :longest].clone()
        return self.forward(x, keep=keep), {"past": past, "position": lengths}

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        if self.value is None:
            token = x
        else:
            token = self.value(x)
        position = cache["position"]
        past = self._appended(token, cache["past"], position)
        with torch.autocast(x.device.type, enabled=False):
            real = wide(past)
            weights = self._weights(position, past.shape[1]).to(real.dtype)[:, None]
            mixed = wide_product(weights, real)[:, 0].to(token.dtype)
        return mixed if self.out is None else self.out(mixed), {
            "past": past,
            "position": position + 1,
        }

    def _mix(self, x: Tensor) -> Tensor:
        config = self.config
        if self.offset is None:
            return causal_fourier(x, self.turn, config.norm, config.evaluation, self.first)
        delta = self.delta(slice(x.shape[1]))
        return learned_causal_fourier(
            x, delta, self.turn, config.terms, config.norm, config.evaluation, self.first
        )

    def _weights(self, position: Tensor, length: int) -> Tensor:
        """Weights of the past tokens at each sample's position, c_n included; (B, C) float64."""
        config = self.config
        period = self.turn
        first = self.first
        place = position + self.first
        scale = row_scale(place, period, config.norm)[:, None]
        if self.offset is None:
            return scale * row_weights(place, length, period, torch.float64, first=first)
        delta = self.delta(position)
        exact = row_weights(place, length, period, torch.float64, delta, first)
        if is_dense(length, config.evaluation, LEARNED_CROSSOVER):
            return scale * exact
        # As `forward` over the same tokens would: interpolated where that takes the chirp.
        close = interpolated_row_weights(place, length, period, delta, config.terms, first)
        through_chirp = position >= (LEARNED_CROSSOVER if config.evaluation == "auto" else 0)
        return scale * torch.where(through_chirp[:, None], close, exact)

    def _appended(self, token: Tensor, past: Tensor, position: Tensor) -> Tensor:
        """The cache with each sample's token at its position, one row longer unless it is as
        long as can be.
        """
        if past.shape[1] < self.longest:
            past = torch.cat([past, past.new_zeros(len(past), 1, past.shape[2])], 1)
        elif bool((position >= self.longest).any()):
            self._refuse_beyond_period(self.longest + 1)
        return past.scatter(
            1, position[:, None, None].expand(-1, 1, past.shape[2]), token[:, None].to(past.dtype)
        )

    def _refuse_beyond_period(self, length: int) -> None:
        if length > self.longest:
            raise PluginError(
                f"causal_fourier: got {length} positions, and it was built for {self.longest}"
            )


def _refuse_other_period(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    saved = state.get(f"{prefix}period")
    if saved is not None and int(saved) != module.turn:
        raise PluginError(
            f"causal_fourier: the saved state has period {int(saved)}, this mixer {module.turn}: "
            f"set period to {int(saved)}"
        )
