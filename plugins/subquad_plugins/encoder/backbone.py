"""The encoder network: a tower and a head.

Letters: B batch, L length, C channels.
"""

from __future__ import annotations

from subquad.nn import BackboneContext, Batch, ModelOutput, gather_losses
from subquad_plugins.encoder import Config
from subquad_plugins.encoder.pool import build_head, num_features
from subquad_plugins.encoder.tower import Tower


class Encoder(Tower):
    """Transformer encoder around any token mixer.

    Args:
        config: see `Config`.
        context: data description, head width and how mixers are built.
    """

    def __init__(self, config: Config, context: BackboneContext):
        super().__init__(config, context)
        self.head = build_head(config, num_features(config, self.max_len), context.num_outputs)

    def forward(self, batch: Batch) -> ModelOutput:
        """`inputs` (B, L, C) float or (B, L) int64 and `keep` (B, L) bool to outputs (B,
        num_outputs).

        With head `each` they are (B, L, num_outputs).
        """
        features, results = self.features(batch["inputs"], batch["keep"])
        losses, penalty = gather_losses(self.mixers, results)
        return ModelOutput(self.head(features), losses, penalty)
