"""What damaged pictures and many shards cost the data set `imagenet`, on one core.

    python benchmarks/shards.py [--pictures ILSVRC.tar] [--rounds 7]

Pictures come from a tar, or are drawn: 200 of 500 x 375 pixels. Printed are, by CPU time:

    bad       pictures per second with 1 % of them cut off, and milliseconds for one of these
    start-up  seconds until 1,000 shards of 1,281 samples are open, and until the data set is
    described

How fast whole pictures are read, beside other code: `benchmarks/readings.py imagenet`.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from statistics import median

import numpy as np
import torch
from readings_imagenet import draw_picture, opened, write_shard

from subquad_datasets.imagenet.dataset import ShardSplit
from subquad_datasets.shards.index import index_path, row_type

BATCH = 32


def pictures(tar: Path | None) -> list[bytes]:
    """JPEG files of a tar; or drawn ones, smooth with noise."""
    if tar:
        with tarfile.open(tar) as stream:
            members = [
                member
                for member in stream
                if member.isfile() and member.name.lower().endswith((".jpg", ".jpeg"))
            ]
            return [stream.extractfile(member).read() for member in members]
    return [draw_picture(number) for number in range(200)]


def shard_of(folder: Path, images: list[bytes]) -> ShardSplit:
    """The pictures in a shard, opened for training."""
    write_shard(folder, images)
    return opened(folder).load("trainval")


def read(split: ShardSplit) -> int:
    """All pictures once."""
    for start in range(0, len(split), BATCH):
        split.fetch(np.arange(start, min(start + BATCH, len(split))), epoch=0, seed=0)
    return len(split)


def rates(pipelines: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Pictures per second of CPU time, medians; the pipelines take turns."""
    found: dict[str, list[float]] = {name: [] for name in pipelines}
    for number in range(rounds + 1):
        for name, pipeline in pipelines.items():
            start = time.process_time()
            count = pipeline()
            if number:  # the first round warms up
                found[name].append(count / (time.process_time() - start))
    return {name: median(values) for name, values in found.items()}


def index_shards(folder: Path, shards: int = 1000, samples: int = 1281) -> None:
    """Indices of shards that hold nothing."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(shards):
        shard = folder / f"train-{number:05d}.tar"
        rows = np.zeros(samples, row_type(26))
        rows["label"] = (np.arange(samples) + number) % 1000
        rows["key"] = [b"n%08d/n%08d_%d" % (label, label, number) for label in rows["label"]]
        rows["sha256"] = generator.integers(0, 256, (samples, 32), np.uint8)
        head = {"format": 1, "name": shard.name, "size": 0, "sha256": "0" * 64, "key_bytes": 26}
        content = json.dumps(head).encode() + b"\n" + rows.tobytes()
        shard.touch()
        index_path(shard).write_bytes(content + sha256(content).digest())


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def lines(root: Path, images: list[bytes], rounds: int) -> Iterator[str]:
    broken = [
        image[: len(image) // 2] if number % 100 == 50 else image
        for number, image in enumerate(images)
    ]
    good, bad = shard_of(root / "good", images), shard_of(root / "bad", broken)
    both = rates({"good": lambda: read(good), "bad": lambda: read(bad)}, rounds)
    yield (
        f"1 % cut off                {both['bad']:6.0f} pictures/s   "
        f"{both['bad'] / both['good']:.3f} of none"
    )
    places = np.arange(50, len(images), 100).repeat(100)
    cost = seconds(lambda: bad.fetch(places, epoch=0, seed=0)) / len(places)
    yield f"a picture that is cut off  {1000 * cost:.3f} ms"
    index_shards(root / "many")
    dataset = opened(root / "many", test="train-00000.tar")
    yield (
        "1,000 shards are open after "
        f"{seconds(dataset.prepare) + seconds(lambda: dataset.load('trainval')):.2f} s"
    )
    yield f"and described, with the validation part, after {seconds(dataset.describe):.2f} s more"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        for line in lines(Path(root), pictures(given.pictures), given.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
