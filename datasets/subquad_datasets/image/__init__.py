"""LRA Image: CIFAR-10 in gray, a pixel a token; or any small square images in classes, or a
stand-in. Light half.

Reference: Tay et al., 2021, Long Range Arena, arXiv:2011.04006, section 2.4; Krizhevsky, 2009 (the
images).
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from subquad.plugin import Config as PluginConfig
from subquad.plugin import DatasetPlugin, param
from subquad_datasets.origin import GENERATED

FRACTION = 0.1

LEAST_SIDE = 16
"""Of generated images: in smaller ones a shape has too few pixels to be told from another."""


class Config(PluginConfig):
    """Where the images are, how pixels become tokens, and how a validation part is cut."""

    path: str | None = param(
        None,
        meaning="CIFAR-10's python archive (cifar-10-batches-py or the tar "
        "with it), or a folder or tar of <split>/<class>/*.png, "
        "*.jpg; splits train and test; null: a generated stand-in",
        path=True,
        min_length=1,
    )
    side: int = param(
        32,
        meaning="height and width of every image; a sequence has side x side tokens",
        ge=1,
        le=1024,
    )
    pixels: Literal["shifted", "official"] = param(
        "shifted",
        meaning="shifted: token = gray value + 1, no padding; official: "
        "token = gray value, so that black pixels count as padding",
    )
    validation: Literal["stratified", "last"] = param(
        "stratified",
        meaning="which part of TRAIN selects checkpoints: drawn by class, or its last "
        "images (not of image files)",
    )
    validation_fraction: float = param(
        FRACTION, meaning="share of TRAIN that is the validation part", gt=0, lt=1
    )
    split_seed: int = param(
        0,
        meaning="seed for drawing the stratified validation part",
        ge=0,
        lt=2**32,
        when={"validation": ("stratified",)},
    )
    train_size: int = param(
        50_000, meaning="images of TRAIN generated", ge=10, le=1_000_000, when=GENERATED
    )
    test_size: int = param(
        10_000,
        meaning="images of the sealed test split generated",
        ge=1,
        le=1_000_000,
        when=GENERATED,
    )
    seed: int = param(
        0,
        meaning="seed of generated images; independent of the training seed",
        ge=0,
        lt=2**32,
        when=GENERATED,
    )

    @model_validator(mode="after")
    def _shapes_have_room(self) -> Config:
        if self.path is None and self.side < LEAST_SIDE:
            raise ValueError(
                f"side {self.side} is too small for generated shapes: use "
                f"{LEAST_SIDE} or more, or a path"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.image.dataset:Image",
    summary="LRA Image: CIFAR-10 in gray as sequences of pixels, any small square images, "
    "or a generated stand-in",
    paper="Tay et al., 2021, Long Range Arena: a benchmark "
    "for efficient transformers, arXiv:2011.04006",
    inputs="tokens",
    targets=("class", "next-token"),
)
