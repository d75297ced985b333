"""How shards and pictures are read, beside webdataset and Pillow, for `subquad bench data`. N pictures."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np

from subquad.data import Reading
from subquad_datasets.decode import Decoder
from subquad_datasets.imagenet import Config
from subquad_datasets.imagenet.dataset import ImageNet, ShardSplit
from subquad_datasets.shards.index import write_index
from subquad_datasets.shards.reader import Shards

SIZE, BATCH = 224, 32
DRAWN, MEMBERS = 64, 2000
"""Pictures that are decoded; samples of a shard, in which each picture is there several times."""

_LEVELS = 2.0
"""Pillow's and torch's resizing round differently: of 255."""


def readings(folder: Path) -> Iterator[Reading]:
    """A shard's samples as bytes; and decoded, cropped at random and mirrored. Nothing where packages are missing."""
    if not all(map(find_spec, ("PIL", "timm", "torchvision", "webdataset"))):
        return
    pictures = [draw_picture(number) for number in range(DRAWN)]
    many, few = folder / "many", folder / "few"
    shard = write_shard(many, [pictures[number % DRAWN] for number in range(MEMBERS)])
    shards = Shards([shard])
    read = {
        "webdataset": lambda: _webdataset(shard),
        "by the index": lambda: (shards.read(row, verify=False) for row in range(MEMBERS)),
        "by the index, sums compared": lambda: (shards.read(row, verify=True) for row in range(MEMBERS)),
    }
    yield Reading("samples of a shard", MEMBERS, read)
    write_shard(few, pictures)
    decoders: list[Decoder] = [one for one in get_args(Decoder) if one == "pillow" or find_spec(one)]
    splits = {f"{name} and torch": opened(few, name).load("trainval") for name in decoders}
    ways = {name: lambda split=split: _squares(split) for name, split in splits.items()}
    yield Reading(
        f"decoded, random crop to {SIZE}", DRAWN, {"pillow alone": lambda: _by_pillow(pictures), **ways}, _LEVELS
    )


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
    config = Config(path=str(folder), test=test, decoder=decoder, size=SIZE, interpolation="bilinear", verify="never")
    return ImageNet(config, folder)


def draw_picture(number: int) -> bytes:
    """A JPEG of 500 x 375 pixels, smooth with noise, of some 110 KB."""
    from PIL import Image

    generator = np.random.default_rng(number)
    coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375), 3)
    noisy = np.asarray(coarse) + generator.normal(0, 6, (375, 500, 3))
    target = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(target, "JPEG", quality=94)
    return target.getvalue()


def _webdataset(shard: Path) -> Iterator[bytes]:
    from webdataset.compat import WebDataset

    source: Any = WebDataset([str(shard)], shardshuffle=False)
    return (sample["jpg"] for sample in source)


def _squares(split: ShardSplit) -> Iterator[np.ndarray]:
    """(3, S, S) uint8, in batches."""
    for indices in np.arange(len(split)).reshape(-1, BATCH):
        yield from split.fetch(indices, epoch=0, seed=0)["inputs"]


def _by_pillow(pictures: list[bytes]) -> Iterator[np.ndarray]:
    """The same, from the same random numbers, all done by Pillow as torchvision and timm do it."""
    from PIL import Image
    from timm.data.transforms import RandomResizedCropAndInterpolation

    from subquad_datasets.augment.transform import seed_generators

    crop = RandomResizedCropAndInterpolation(SIZE, interpolation="bilinear")
    flip = Config(path=".").flip
    for index, data in enumerate(pictures):
        seed_generators(0, 0, index)
        square: Any = crop(Image.open(io.BytesIO(data)).convert("RGB"))
        if random.random() < flip:
            square = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield np.asarray(square).transpose(2, 0, 1)
