"""Mega as a token mixer: the gated layer with attention over all keys of a chunk.

Letters: B batch, G chunks, c chunk length, z attention width, v value width.
"""

from __future__ import annotations

from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.mega import Config
from subquad_plugins.mega.attention import mega_weights
from subquad_plugins.mega.bias import dense_bias
from subquad_plugins.mega.layer import GatedAttention


class Mega(GatedAttention):
    """Moving average equipped gated attention.

    Args:
        config: see `Config`.
        site: see `GatedAttention`.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site)
        self.attention_dropout = config.attention_dropout

    def attend(
        self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor
    ) -> Tensor:
        weights = mega_weights(
            q, k, dense_bias(bias), self.config.attention, keep=keep, causal=self.causal
        )
        return self._dropped(weights, self.attention_dropout).to(value.dtype) @ value
