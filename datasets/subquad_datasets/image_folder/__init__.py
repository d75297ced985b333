"""Pictures of one's own: a folder for each class. Light half."""

from __future__ import annotations

from pathlib import PurePath

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.augment import AugmentConfig
from subquad_datasets.decode import MAX_PIXELS, Decoder


class Config(AugmentConfig):
    """Where the pictures are, how TEST and a validation part are cut where no folders say, and
    how they are changed.
    """

    path: str = param(
        meaning="folder with train/<class>/*.jpg, *.png, *.gif, *.webp, test/<class>/ and "
        "optionally validation/<class>/; without train, with <class>/ itself",
        path=True,
        min_length=1,
    )
    test_fraction: float | None = param(
        None,
        meaning="share of the training pictures, by class, that becomes the sealed test split "
        "where there is no folder test; null: there is",
        gt=0,
        lt=1,
    )
    validation_fraction: float = param(
        0.1,
        meaning="share of TRAIN, by class, that selects "
        "checkpoints, where there is no folder validation",
        gt=0,
        lt=1,
    )
    split_seed: int = param(
        0, meaning="seed for drawing a validation part and a test part", ge=0, lt=2**32
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

    @staticmethod
    def label(path: str) -> str:
        return PurePath(path).name


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.image_folder.dataset:ImageFolder",
    summary="pictures of one's own in folders of classes, with DeiT's augmentation",
    paper="Touvron et al., 2021, Training data-efficient image transformers, "
    "arXiv:2012.12877 (augmentation)",
    inputs="images",
    targets=("class",),
)
