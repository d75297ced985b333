"""From a decoded picture to the square that a model sees, by timm's transforms. H x W pixels, S
= size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from timm.data.auto_augment import NAME_TO_OP, posterize
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from timm.data.transforms_factory import create_transform
from torch import Tensor
from torch.nn.functional import interpolate

from subquad_datasets.augment import AugmentConfig

Transform = Callable[[np.ndarray], np.ndarray]


@contextmanager
def randomness_kept() -> Iterator[None]:
    """Puts the generators of Python, NumPy and torch back as they were, so that dropout draws
    what it would have.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def seed_generators(*key: int) -> None:
    """Seed the generators that timm draws from with numbers that belong to one sample. Those of
    GPUs stay.
    """
    first, second, third = np.random.SeedSequence(key).generate_state(3).tolist()
    random.seed(first)
    np.random.seed(second)
    torch.default_generator.manual_seed(third)


@lru_cache
def evaluation(config: AugmentConfig) -> Transform:
    """(H, W, 3) to (3, S, S), uint8: resized, and the centre cut out; nothing is random."""
    transform: Any = create_transform(
        config.size,
        interpolation=config.interpolation,
        crop_pct=config.crop_share,
        use_prefetcher=True,
    )
    return lambda image: transform(Image.fromarray(image)).numpy()


@lru_cache
def training(config: AugmentConfig) -> Transform:
    """(H, W, 3) to (3, S, S), uint8: a random crop, flipped and changed; draws from the global
    generators.

    Departures: the crop is resized by torch, which takes a third of Pillow's time. Both round to
    bytes, and are equally far from exact arithmetic. The published code erases after pixels were
    normalised. Here they stay bytes, so the noise is scaled as normalised pixels of ImageNet would
    be, and what is out of range is clipped.
    """
    _repair_posterize()
    steps: Any = create_transform(
        config.size,
        is_training=True,
        interpolation=config.interpolation,
        color_jitter=None,  # type: ignore[arg-type]
        auto_augment=config.auto_augment,
        separate=True,
    )
    policy = steps[1]
    erase = RandomErasing(1.0, mode="pixel", device="cpu")

    def transform(picture: np.ndarray) -> np.ndarray:
        square = _random_crop(picture, config)
        if random.random() < config.flip:
            square = square.flip(-1)
        if config.auto_augment:
            image = policy(Image.fromarray(square.permute(1, 2, 0).numpy()))
            square = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return _erased(square.numpy(), erase, config.erase)

    return transform


def _repair_posterize() -> None:
    """Let policies keep 0 bits of a picture, as the noise on DeiT's magnitude asks for now and
    then.

    Pillow 13 refuses that, and timm 1.0.31 asks for it. Published code ran with versions that gave
    black, as here.
    """
    names = [name for name, operation in NAME_TO_OP.items() if operation is posterize]
    NAME_TO_OP.update(dict.fromkeys(names, _posterize))


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    if bits:
        return ImageOps.posterize(image, bits)
    return Image.new(image.mode, image.size)


def _random_crop(picture: np.ndarray, config: AugmentConfig) -> Tensor:
    """(H, W, 3) to (3, S, S), uint8: a part whose place, area and ratio timm draws."""
    pixels = torch.from_numpy(picture).permute(2, 0, 1)
    limits = (config.crop_area, 1.0), (1 / config.crop_ratio, config.crop_ratio)
    top, left, height, width = RandomResizedCropAndInterpolation.get_params(pixels, *limits)
    crop = pixels[None, :, top : top + height, left : left + width]
    return interpolate(crop, (config.size, config.size), mode=config.interpolation, antialias=True)[
        0
    ]


def _erased(picture: np.ndarray, erase: RandomErasing, probability: float) -> np.ndarray:
    if random.random() >= probability:
        return picture
    noise: Tensor = torch.full(picture.shape, torch.nan)
    erase(noise)
    mean, deviation = (
        torch.tensor(numbers)[:, None, None]
        for numbers in (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
    )
    pixels = (255 * (noise * deviation + mean)).round().clamp(0, 255).numpy()
    return np.where(np.isnan(pixels), picture, pixels).astype(np.uint8)
