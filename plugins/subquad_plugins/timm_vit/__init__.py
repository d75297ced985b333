"""timm's vision transformers around any token mixer. Light half; docs/reference/timm-vit.md has the
parameters.

Reference: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words; Touvron et al. 2021, Training
data-efficient image transformers; the networks and their published weights are those of timm
(Wightman 2019).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from subquad.plugin import BackboneConfig, BackbonePlugin, param

Channels = Annotated[tuple[Annotated[float, Field(strict=False)], ...], Field(min_length=1)]


class Config(BackboneConfig):
    """Parameters of a vision transformer; what is null is as the named model has it."""

    model: str = param(
        meaning="timm's name, such as deit_small_patch16_224; images have the data set's size"
    )
    patch_size: int | None = param(None, meaning="side of a patch, in pixels", ge=1)
    depth: int | None = param(None, meaning="layers", ge=1, le=256)
    dim: int | None = param(None, meaning="model width; num_heads must divide it", symbol="D", ge=1)
    num_heads: int | None = param(None, meaning="heads of each mixer", symbol="H", ge=1)
    class_token: bool | None = param(None, meaning="whether a class token stands in front")
    pool: Literal["token", "avg", "max"] | None = param(
        None,
        meaning="what the head sees: the class token, or the mean or the largest of the patches",
    )
    drop_path: float = param(
        0.0,
        meaning="probability of leaving out a part of the last layer; it grows linearly from 0",
        ge=0,
        lt=1,
    )
    layer_decay: float = param(
        1.0,
        meaning="learning rate of each layer over that of "
        "the layer above it; the head's is train.lr",
        gt=0,
        le=1,
    )
    mean: Channels | None = param(
        None, meaning="mean of each channel of pixels in 0..1, subtracted", strict=False
    )
    std: Channels | None = param(
        None, meaning="deviation of each channel, divided by", strict=False
    )

    @model_validator(mode="after")
    def _token_to_pool(self) -> Self:
        if self.class_token is False and self.pool in (None, "token"):
            raise ValueError("class_token false leaves nothing for pool token: use pool avg or max")
        return self


PLUGIN = BackbonePlugin(
    config=Config,
    build="subquad_plugins.timm_vit.backbone:VisionTransformer",
    summary="any of timm's vision transformers around any token mixer, for images",
    inputs=("images",),
    targets=("class", "values", "multilabel"),
)
