"""The dual encoder network: one tower, run over either sequence of a pair, and a head on both
feature vectors.

Letters: B batch, L length, C channels, F features.
Reference: Xiong et al. 2021, Nystromformer, its code for Long Range Arena (`ModelForSCDual`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from subquad.errors import DataError
from subquad.nn import BackboneContext, Batch, ModelOutput, gather_losses
from subquad_plugins.encoder import Config
from subquad_plugins.encoder.pool import build_head, num_features
from subquad_plugins.encoder.tower import Tower

SECOND = ("inputs_b", "keep_b")


class DualEncoder(Tower):
    """Two towers with the same weights. Weights of an `Encoder` fit, its head apart.

    Args:
        config: see `Config`.
        context: data description, head width and how mixers are built.
    """

    def __init__(self, config: Config, context: BackboneContext):
        super().__init__(config, context)
        self.head = build_head(config, 4 * num_features(config, self.max_len), context.num_outputs)

    def forward(self, batch: Batch) -> ModelOutput:
        """`inputs`, `inputs_b` (B, L, C) float or (B, L) int64 and `keep`, `keep_b` (B, L) bool to
        (B, num_outputs).

        The sequences pass one after the other, so no carry of one reaches the other. Extra losses
        are means over both.

        Raises:
            DataError: the batch holds one sequence only.
        """
        if not all(name in batch for name in SECOND):
            raise DataError(
                "dual-encoder: batches must hold inputs_b and keep_b, these hold "
                f"{', '.join(sorted(batch))}; use backbone encoder"
            )
        a, first = self.features(batch["inputs"], batch["keep"])
        b, second = self.features(batch["inputs_b"], batch["keep_b"])
        losses, penalty = gather_losses(self.mixers + self.mixers, first + second)
        return ModelOutput(self.head(pair_features(a, b)), losses, penalty)


def pair_features(a: Tensor, b: Tensor) -> Tensor:
    """[a, b, a * b, a - b]: (B, F) twice to (B, 4 F)."""
    return torch.cat([a, b, a * b, a - b], -1)
