"""ImageNet, or any pictures in classes, in WebDataset shards with an index. Light half.

Reference: Russakovsky et al., 2015, ImageNet large scale visual recognition challenge,
arXiv:1409.0575; WebDataset's layout of shards.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal, Self

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.augment import AugmentConfig
from subquad_datasets.decode import MAX_PIXELS, Decoder


class Config(AugmentConfig):
    """Where the shards are, which classes are taken, how a validation part is cut, and how
    pictures are read.
    """

    path: str = param(
        meaning="folder with shards and their indices (subquad data shard, subquad data index); "
        "one in an object store (s3://, gs://) is read from there, sample by sample",
        path=True,
        min_length=1,
    )
    train: str = param(
        "train-*.tar", meaning="names of TRAIN's shards: *, ? and {00000..00999}", min_length=1
    )
    test: str = param(
        "val-*.tar",
        meaning="names of TEST's shards: ImageNet's published validation set",
        min_length=1,
    )
    classes: str | None = param(
        None,
        meaning="file with the classes to take, a name a line, "
        "as in classes.txt beside the shards; null: all",
        path=True,
        min_length=1,
    )
    validation_fraction: float = param(
        0.02, meaning="share of TRAIN, by class, that selects checkpoints", gt=0, lt=1
    )
    split_seed: int = param(0, meaning="seed for drawing the validation part", ge=0, lt=2**32)
    window: int | None = param(
        32_768,
        meaning="samples that are shuffled among themselves, "
        "of shards in random order; null: all samples",
        ge=1,
    )
    cache_gb: float | None = param(
        100.0,
        meaning="of shards in an object store, what is kept on this machine's disk at most; "
        "null: all of them are copied before the first step",
        unit="GB",
        ge=0,
    )
    verify: Literal["always", "once", "never"] = param(
        "always",
        meaning="when sha256 sums are compared: of each picture whenever "
        "it is read; of whole shards before training; not at all",
    )
    decoder: Decoder = param(
        "pillow", meaning="what reads JPEGs; the pixels are the same, the others are faster"
    )
    max_pixels: int = param(
        MAX_PIXELS,
        meaning="pictures with more count as unreadable",
        unit="pixels",
        ge=1,
        le=MAX_PIXELS,
    )

    @model_validator(mode="after")
    def _names_lie_in_the_folder(self) -> Self:
        for key in ("train", "test"):
            name = getattr(self, key)
            if "://" in name or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                raise ValueError(f"{key} {name!r} must be the name of shards in the folder of path")
        return self

    @model_validator(mode="after")
    def _settings_have_an_effect(self) -> Self:
        streams = "://" in self.path and self.cache_gb is not None
        if streams and self.verify == "once":
            raise ValueError(
                "verify 'once' reads all shards before training, and those in an object store are "
                "read sample by sample; use always, or cache_gb null"
            )
        if "://" not in self.path and self.cache_gb != type(self).model_fields["cache_gb"].default:
            raise ValueError("cache_gb has no effect with a folder of this machine; leave it out")
        return self

    @staticmethod
    def label(classes: str | None) -> str:
        if classes:
            return PurePath(classes).stem
        return ""


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.imagenet.dataset:ImageNet",
    summary="ImageNet, all or some of its classes, or any labelled pictures, in WebDataset shards",
    paper="Russakovsky et al., 2015, ImageNet large scale "
    "visual recognition challenge, arXiv:1409.0575",
    inputs="images",
    targets=("class",),
)
