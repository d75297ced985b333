"""The decoder: a language model around any causal token mixer. Light half.

docs/reference/decoder.md has the parameters of nanoGPT's small model.
"""

from __future__ import annotations

from subquad.plugin import BackbonePlugin, param
from subquad_plugins.encoder import TransformerConfig


class Config(TransformerConfig):
    """Parameters of the decoder."""

    tied: bool = param(
        True, meaning="the head has the token table's weights; false: weights and a bias of its own"
    )


PLUGIN = BackbonePlugin(
    config=Config,
    build="subquad_plugins.decoder.backbone:LanguageModel",
    summary="transformer decoder around any causal token mixer: a language model",
    inputs=("tokens",),
    targets=("next-token",),
    causal=True,
)
