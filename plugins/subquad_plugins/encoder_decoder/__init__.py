"""The encoder-decoder: reads one text, and others beside it, and writes another. Light half.

docs/reference/encoder-decoder.md has the parameters and the published models that are settings of
it.
"""

from __future__ import annotations

from typing import Literal

from subquad.plugin import BackbonePlugin, param
from subquad_plugins import decoder


class Config(decoder.Config):
    """Parameters of the encoder-decoder. `num_layers` is the encoder's."""

    decoder_layers: int | None = param(
        None, meaning="layers of the decoder; null: num_layers", ge=1, le=256
    )
    modalities: Literal["after", "before", "none"] = param(
        "after",
        meaning="further inputs of the data set, such as section titles: read after the "
        "text, before it, or left out",
    )


PLUGIN = BackbonePlugin(
    config=Config,
    build="subquad_plugins.encoder_decoder.backbone:EncoderDecoder",
    summary="transformer encoder-decoder around mixers of three roles: self, decoder and cross",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    inputs=("tokens",),
    targets=("sequence",),
)
