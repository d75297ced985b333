"""Shards and pictures beside webdataset and Pillow, for benchmarks/readings.py. N pictures."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from readings import Reading

from subquad_datasets.decode import Decoder
from subquad_datasets.imagenet import Config
from subquad_datasets.imagenet.dataset import ImageNet, ShardSplit
from subquad_datasets.shards.index import write_index
from subquad_datasets.shards.reader import open_shards

SIZE, BATCH = 224, 32
DRAWN, MEMBERS = 64, 2000
"""Pictures that are decoded; samples of a shard, in which each picture is there several times."""

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_LEVELS = 2.0
"""Pillow's and torch's resizing round differently: of 255."""


def readings(folder: Path) -> Iterator[Reading]:
    """A shard's samples as bytes; decoded, cropped at random and mirrored; and as normalised
    batches.

    Nothing where packages are missing.
    """
    if not all(map(find_spec, ("PIL", "timm", "torchvision", "webdataset"))):
        return
    pictures = [draw_picture(number) for number in range(DRAWN)]
    many, few = folder / "many", folder / "few"
    shard = write_shard(many, [pictures[number % DRAWN] for number in range(MEMBERS)])
    shards = open_shards([shard], folder / "root")
    read = {
        "webdataset": lambda: _webdataset(shard),
        "by the index": lambda: (shards.read(row, verify=False) for row in range(MEMBERS)),
        "by the index, sums compared": lambda: (
            shards.read(row, verify=True) for row in range(MEMBERS)
        ),
    }
    yield Reading("samples of a shard", MEMBERS, read)
    shard_of_few = write_shard(few, pictures)
    decoders: list[Decoder] = [
        arg for arg in get_args(Decoder) if arg == "pillow" or find_spec(arg)
    ]
    splits = {f"{name} and torch": opened(few, name).load("trainval") for name in decoders}
    squares = {
        "pillow alone": lambda: (
            np.asarray(picture).transpose(2, 0, 1) for picture in _by_pillow(pictures)
        )
    }
    squares |= {name: lambda split=split: chain(*_batches(split)) for name, split in splits.items()}
    yield Reading(f"decoded, random crop to {SIZE}", DRAWN, squares, _LEVELS)
    batches = {"webdataset and torchvision": lambda: _by_torchvision(shard_of_few)}
    batches |= {
        name: lambda split=split: map(_normalised, _batches(split))
        for name, split in splits.items()
    }
    yield Reading("the same as normalised batches", DRAWN, batches, _LEVELS / 255 / min(_STD))


def write_shard(folder: Path, images: list[bytes]) -> Path:
    """One shard of the pictures in a new folder, and its index."""
    from webdataset.writer import TarWriter

    folder.mkdir()
    shard = folder / "train-00000.tar"
    with TarWriter(str(shard), encoder=False) as tar:
        for number, image in enumerate(images):
            tar.write({"__key__": f"{number:05d}", "jpg": image, "cls": b"%d" % (number % 2)})
    write_index(shard)
    return shard


def opened(folder: Path, decoder: Decoder = "pillow", test: str = "train-*.tar") -> ImageNet:
    """The data set of a folder of shards, at this size."""
    config = Config(
        path=str(folder),
        test=test,
        decoder=decoder,
        size=SIZE,
        interpolation="bilinear",
        verify="never",
    )
    return ImageNet(config, folder)


def draw_picture(number: int) -> bytes:
    """A JPEG of 500 x 375 pixels, smooth with noise, of some 110 KB."""
    from PIL import Image

    generator = np.random.default_rng(number)
    coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), np.uint8)).resize(
        (500, 375), 3
    )
    noisy = np.asarray(coarse) + generator.normal(0, 6, (375, 500, 3))
    target = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(target, "JPEG", quality=94)
    return target.getvalue()


def _webdataset(shard: Path) -> Iterator[bytes]:
    from webdataset.compat import WebDataset

    source: Any = WebDataset([str(shard)], shardshuffle=False)
    return (sample["jpg"] for sample in source)


def _batches(split: ShardSplit) -> Iterator[np.ndarray]:
    """(B, 3, S, S) uint8."""
    for indices in np.arange(len(split)).reshape(-1, BATCH):
        yield split.fetch(indices, epoch=0, seed=0)["inputs"]


def _normalised(batch: np.ndarray) -> np.ndarray:
    """(B, 3, S, S) float32, as `timm-vit` makes of them."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STD))
    return torch.from_numpy(batch).float().mul_(1 / (255 * std)).sub_(mean / std).numpy()


def _by_pillow(pictures: Iterable[bytes]) -> Iterator[Any]:
    """Pillow's images, from the same random numbers, all done by Pillow as torchvision and timm
    do it.
    """
    from PIL import Image
    from timm.data.transforms import RandomResizedCropAndInterpolation

    from subquad_datasets.augment.pictures import seed_generators

    crop = RandomResizedCropAndInterpolation(SIZE, interpolation="bilinear")
    flip = Config(path=".").flip
    for index, data in enumerate(pictures):
        seed_generators(0, 0, index)
        square: Any = crop(Image.open(io.BytesIO(data)).convert("RGB"))
        yield (
            square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < flip else square
        )


def _by_torchvision(shard: Path) -> Iterator[np.ndarray]:
    """(B, 3, S, S) float32, as training scripts on webdataset do it."""
    from torchvision.transforms.functional import normalize, to_tensor

    squares = _by_pillow(_webdataset(shard))
    while batch := [
        normalize(to_tensor(square), list(_MEAN), list(_STD)) for square in islice(squares, BATCH)
    ]:
        yield torch.stack(batch).numpy()
