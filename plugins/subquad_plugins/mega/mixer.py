"""Mega as a token mixer: the gated layer with attention over all keys of a chunk.

Letters: B batch, G chunks, c chunk length, z attention width, v value width.
"""

from __future__ import annotations

from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.mega import Config
from subquad_plugins.mega.attention import attention_weights, scaled_queries, similarity, visible_keys
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

    def attend(self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor) -> Tensor:
        form = self.config.attention
        visible = visible_keys(keep, k.shape[-2], causal=self.causal, device=k.device)
        scores = similarity(scaled_queries(q, visible, k.shape[-2], form), k, dense_bias(bias))
        weights = attention_weights(scores, visible, form)
        return self._dropped(weights, self.attention_dropout).to(value.dtype) @ value
