"""LRA Image: CIFAR-10 in gray, a pixel a token, or any folder of small square images in classes. Light half.

Reference: Tay et al., 2021, Long Range Arena, arXiv:2011.04006, section 2.4; Krizhevsky, 2009 (the images).
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from subquad.plugin import Config as PluginConfig
from subquad.plugin import DatasetPlugin, param

FRACTION = 0.1


class Config(PluginConfig):
    """Where the images are, how pixels become tokens, and how a validation part is cut."""

    path: str = param(
        meaning="CIFAR-10's python archive (cifar-10-batches-py or the tar with it), or a folder or tar of "
        "<split>/<class>/*.png, *.jpg; splits train and test",
        path=True,
        min_length=1,
    )
    side: int = param(32, meaning="height and width of every image; a sequence has side x side tokens", ge=1, le=1024)
    pixels: Literal["shifted", "official"] = param(
        "shifted",
        meaning="shifted: token = gray value + 1, no padding; official: token = gray value, so that black pixels count "
        "as padding",
    )
    validation: Literal["stratified", "last"] = param(
        "stratified",
        meaning="which part of TRAIN selects checkpoints: drawn by class, or its last images (archive only)",
    )
    validation_fraction: float = param(FRACTION, meaning="share of TRAIN that is the validation part", gt=0, lt=1)
    split_seed: int = param(0, meaning="draw of the stratified validation part", ge=0, lt=2**32)

    @model_validator(mode="after")
    def _refuse(self) -> Config:
        if self.validation == "last" and self.split_seed:
            raise ValueError(
                f"split_seed {self.split_seed} has no effect with validation last: leave it at 0, or use "
                "validation stratified"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.image.dataset:Image",
    summary="LRA Image: CIFAR-10 in gray as sequences of pixels, or any small square images",
    paper="Tay et al., 2021, Long Range Arena: a benchmark for efficient transformers, arXiv:2011.04006",
    tasks=("classification",),
    modality="tokens",
)
