"""One decoder layer: causal token mixer, where there is another sequence a look at it, feed-forward
part.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from subquad.nn import Cache, TokenMixer
from subquad_plugins.encoder import TransformerConfig
from subquad_plugins.encoder.layer import EncoderLayer, layer_norm, mixed
from subquad_plugins.numerics.dropout import Dropout

Way = Callable[[Tensor], tuple[Tensor, Any]]
"""From what a mixer is given to its output and what else comes of it."""


class DecoderLayer(EncoderLayer):
    """(B, L, D) to (B, L, D), and what its mixers returned besides; or the same with a cache, from
    token to token.

    Args:
        config: see `TransformerConfig`.
        mixer: acts along the sequence, and is causal.
        cross: lets the sequence see another one; None where there is none.
    """

    def __init__(
        self, config: TransformerConfig, mixer: TokenMixer, cross: TokenMixer | None = None
    ):
        super().__init__(config, mixer)
        self.cross: Any = cross
        if cross is not None:
            self.cross_norm = layer_norm(config)
            self.cross_dropout = Dropout(config.dropout)

    @property
    def mixers(self) -> list[TokenMixer]:
        if self.cross is None:
            return [self.mixer]
        return [self.mixer, self.cross]

    def forward(
        self, x: Tensor, keep: Tensor | None = None, carry: Any = None, **context: Tensor | None
    ) -> Any:
        """x, and the `MixerOutput` of each mixer; the other sequence is `context` and
        `context_keep`.
        """

        def called(mixer: TokenMixer, x: Tensor, **given: Any) -> tuple[Tensor, Any]:
            result = mixed(mixer, x, keep=keep, **given)
            return result.out, result

        return self._run(
            x, partial(called, self.mixer, carry=carry), partial(called, self.cross, **context)
        )

    def prefill(self, x: Tensor, keep: Tensor, memory: Cache = None) -> tuple[Tensor, list[Cache]]:
        """As `TokenMixer.prefill`; the memory is that of `cross`."""
        if self.cross is None:
            across = None
        else:
            across = partial(self.cross.prefill, keep=keep, memory=memory)
        out, *caches = self._run(x, partial(self.mixer.prefill, keep=keep), across)
        return out, caches

    def step(
        self, x: Tensor, caches: list[Cache], memory: Cache = None
    ) -> tuple[Tensor, list[Cache]]:
        """As `TokenMixer.step`; the memory is that of `cross`."""

        def along(x: Tensor) -> tuple[Tensor, Cache]:
            return self.mixer.step(x, caches[0])

        def across(x: Tensor) -> tuple[Tensor, Cache]:
            assert self.cross is not None
            return self.cross.step(x, caches[1], memory=memory)

        out, *after = self._run(x, along, across)
        return out, after

    def _run(self, x: Tensor, along: Way, across: Way | None) -> tuple[Any, ...]:
        out, own = along(self.given(self.mixer_norm, x))
        x = self.joined(self.mixer_norm, x, self.mixer_dropout(out))
        if self.cross is None or across is None:
            return self.fed(x), own
        out, other = across(self.given(self.cross_norm, x))
        return self.fed(self.joined(self.cross_norm, x, self.cross_dropout(out))), own, other
