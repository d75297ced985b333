"""The encoder: embedding, layers around a token mixer, pooling and head. Light half.

Both published models (UEA, Long Range Arena) are settings of it; docs/reference/encoder.md has
their parameters.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from subquad.plugin import BackboneConfig, BackbonePlugin, param

EMBEDDING_INIT = 0.02
"""The deviation in the UEA and the LRA code alike."""


class TransformerConfig(BackboneConfig):
    """Parameters of every stack of layers around token mixers, in encoders and decoders alike."""

    num_layers: int = param(2, meaning="layers", ge=1, le=256)
    dim: int = param(64, meaning="model width", symbol="D", ge=1, le=2**20)
    num_heads: int = param(
        2, meaning="heads of each mixer; dim must be divisible by it", symbol="H", ge=1
    )
    ffn_dim: int | None = param(
        None, meaning="width of the feed-forward part; null: four times dim", ge=1, le=2**22
    )
    norm: Literal["pre", "post", "none"] = param(
        "pre",
        meaning="layer norm before each part (LRA) or after its residual sum (UEA); none: plain "
        "sums, around mixers with a norm of their own (MDFWA, Mega)",
    )
    activation: Literal["gelu", "relu"] = param(
        "gelu", meaning="activation of the feed-forward part"
    )
    dropout: float = param(
        0.1, meaning="dropout of embeddings, mixer outputs and both feed-forward layers", ge=0, lt=1
    )
    vocab_size: int | None = param(
        None,
        meaning="rows of the token table, at least the data set's; more "
        "take no part (LRA: 32 or 512); null: the data set's",
        ge=1,
        le=2**24,
    )
    positions: Literal["learned", "sinusoidal", "none"] = param(
        "learned", meaning="what is added to tell positions apart"
    )
    position_init: Literal["normal", "uniform"] = param(
        "normal",
        meaning="start of learned positions: normal (LRA) or "
        "uniform (UEA), as wide as embedding_init says",
        when={"positions": ("learned",)},
    )
    embedding_init: float = param(
        EMBEDDING_INIT,
        meaning="deviation that token embeddings, a class token and learned positions start with; "
        "half the width of uniform positions; 0.02 in UEA and LRA",
        gt=0,
        le=10,
    )
    input_scale: bool = param(
        False, meaning="multiply embedded inputs by the square root of dim (UEA)"
    )
    final_norm: bool = param(True, meaning="layer norm after the last layer")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dim % self.num_heads:
            raise ValueError(
                f"dim {self.dim} is not divisible by num_heads {self.num_heads}: use num_heads "
                f"{_divisor(self.dim, self.num_heads)}, "
                f"or dim {-(-self.dim // self.num_heads) * self.num_heads}"
            )
        return self

    def padding_reason(self) -> str:
        return ""


class Config(TransformerConfig):
    """Parameters of the encoder."""

    mask_mixer: bool = param(
        True, meaning="tell mixers which positions are padding; the UEA protocol does not"
    )
    final_activation: Literal["none", "gelu", "relu"] = param(
        "none", meaning="activation after the final norm; gelu in UEA"
    )
    head: Literal["mean", "mean_padded", "cls", "last", "flatten", "each"] = param(
        "mean",
        meaning="pooling: mean over real tokens, their sum over the padded length (LRA), a class "
        "token, the last real token, or all positions with padding zeroed (UEA); each: no "
        "pooling, for data sets that label positions",
    )
    head_hidden: int | None = param(
        None,
        meaning="hidden width of a head with two layers (LRA); null: one layer",
        ge=1,
        le=2**22,
    )
    head_dropout: float = param(0.0, meaning="dropout before pooling; 0.1 in UEA", ge=0, lt=1)

    def padding_reason(self) -> str:
        if not self.mask_mixer:
            return "mask_mixer false lets mixers see padding; use mask_mixer true"
        if self.head == "mean_padded":
            return "head mean_padded divides by the padded length; use head mean"
        if self.head == "flatten":
            return "head flatten has weights for each padded position; use head mean"
        if self.head == "each":
            return (
                "head each has outputs, and the data set labels, for padded positions; "
                "use a data set of one length"
            )
        return ""


def _divisor(dim: int, heads: int) -> int:
    """The divisor of `dim` nearest to `heads`."""
    return min((n for n in range(1, dim + 1) if dim % n == 0), key=lambda n: (abs(n - heads), n))


PLUGIN = BackbonePlugin(
    config=Config,
    build="subquad_plugins.encoder.backbone:Encoder",
    summary="transformer encoder around any token mixer, for series and tokens",
    inputs=("series", "tokens"),
    targets=("class", "positions", "values", "multilabel"),
)
