"""The dual encoder: two sequences, one encoder for both, a head on the pair. Light half.

The parameters are the encoder's. With those of docs/reference/papers/lra.md it is the published
model of Long Range Arena's Retrieval.
"""

from __future__ import annotations

from subquad.plugin import BackbonePlugin
from subquad_plugins.encoder import Config

PLUGIN = BackbonePlugin(
    config=Config,
    build="subquad_plugins.dual_encoder.backbone:DualEncoder",
    summary="one transformer encoder for two sequences, around "
    "any token mixer; head on [a, b, a * b, a - b]",
    inputs=("series", "tokens"),
    targets=("pair",),
)
