"""How pictures are cropped, changed and mixed: the parameters that all data sets of pictures share.
Light half.

References: Touvron et al., 2021, Training data-efficient image transformers, arXiv:2012.12877,
table 9; Cubuk et al., 2020, RandAugment, arXiv:1909.13719; Zhong et al., 2020, Random erasing,
arXiv:1708.04896; Zhang et al., 2018, mixup, arXiv:1710.09412; Yun et al., 2019, CutMix,
arXiv:1905.04899; Hoffer et al., 2020, Augment your batch, arXiv:1901.09335.
"""

from __future__ import annotations

from typing import Literal

from subquad.plugin import DatasetConfig, Not, param


class AugmentConfig(DatasetConfig):
    """From a decoded picture to what a model sees, in training and in evaluation."""

    size: int = param(
        224, meaning="height and width that a model sees", unit="pixels", ge=1, le=4096
    )
    interpolation: Literal["bilinear", "bicubic"] = param(
        "bicubic", meaning="how pictures are resized"
    )
    crop_share: float = param(
        0.875,
        meaning="evaluation: share of the resized picture's "
        "shorter side that its centre crop shows",
        gt=0,
        le=1,
    )
    crop_area: float = param(
        0.08,
        meaning="training: least share of the area that a random crop shows; 1: the most that fits",
        gt=0,
        le=1,
    )
    crop_ratio: float = param(
        4 / 3,
        meaning="training: a random crop is at most this "
        "many times as wide as high, or the reverse",
        ge=1,
        le=10,
    )
    flip: float = param(0.5, meaning="training: probability of a mirrored picture", ge=0, le=1)
    auto_augment: str | None = param(
        None,
        meaning="training: timm's name of a policy, such as rand-m9-mstd0.5-inc1 "
        "(RandAugment of DeiT); null: none",
        pattern=r"^(rand|augmix|3a|original|originalr|v0|v0r)(-[a-z]+[0-9.]+)*$",
    )
    erase: float = param(
        0.0, meaning="training: probability that a rectangle is replaced by noise", ge=0, le=1
    )
    mixup: float = param(
        0.0,
        meaning="training: two pictures are added, with shares from Beta(mixup, mixup); 0: never",
        ge=0,
        le=10,
    )
    cutmix: float = param(
        0.0,
        meaning="training: two pictures swap a box with a "
        "share from Beta(cutmix, cutmix); 0: never",
        ge=0,
        le=10,
    )
    mix_prob: float = param(
        1.0,
        meaning="probability that a pair is mixed",
        ge=0,
        le=1,
        when=({"mixup": Not(0)}, {"cutmix": Not(0)}),
    )
    switch_prob: float = param(
        0.5,
        meaning="of mixed pairs, the share that cutmix mixes where mixup is on too",
        ge=0,
        le=1,
        when={"mixup": Not(0), "cutmix": Not(0)},
    )

    repeats: int = param(
        1,
        meaning="training: so many changed copies of a picture in "
        "a batch; an epoch shows as many fewer pictures",
        ge=1,
        le=16,
    )

    @property
    def mixes(self) -> bool:
        """Whether pairs are mixed in training."""
        return bool(self.mixup or self.cutmix)
