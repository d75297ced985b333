"""Blocks of images from several processes, in order.

Each is `python -m subquad_datasets.pathfinder.worker JSON`, started here and not by users. It
writes the blocks that are its turn to its standard output: first the pixels, then the labels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import IO

import numpy as np

from subquad.errors import DataError
from subquad_datasets.pathfinder import balanced
from subquad_datasets.pathfinder.drawing import Difficulty, Resolution, drawing
from subquad_datasets.pathfinder.generate import draw_images

Block = tuple[np.ndarray, np.ndarray]

IMAGES_IN_BLOCK: dict[Resolution, int] = {32: 512, 64: 256, 128: 64, 256: 32}


@dataclass(frozen=True)
class Order:
    """Which images are wanted.

    Attributes:
        resolution: of the images.
        difficulty: of the images.
        seed: of the data.
        split: number of the split; each has its own stream.
        count: images 0 .. count - 1.
        first: block to begin with.
        step: to the next block.
        balanced: with discs that say nothing by where they stand.
    """

    resolution: Resolution
    difficulty: Difficulty
    seed: int
    split: int
    count: int
    first: int = 0
    step: int = 1
    balanced: bool = False

    @property
    def in_block(self) -> int:
        """Images of a block."""
        if self.balanced:
            return balanced.IN_BLOCK
        return IMAGES_IN_BLOCK[self.resolution]

    def ranges(self) -> list[range]:
        """The images of each of the blocks, in order."""
        size = self.in_block
        starts = range(0, self.count, size)[self.first :: self.step]
        return [range(start, min(start + size, self.count)) for start in starts]

    def draw(self) -> Iterator[Block]:
        """The blocks: (n, H * H) uint8 pixels and (n,) uint8 labels."""
        what = drawing(self.resolution, self.difficulty)
        for images in self.ranges():
            if self.balanced:
                block = images.start // self.in_block
                pixels, labels = balanced.draw_balanced(what, self.seed, self.split, block)
                yield pixels[: len(images)], labels[: len(images)]
            else:
                yield draw_images(what, self.seed, self.split, np.arange(images.start, images.stop))


def blocks(order: Order, processes: int) -> Iterator[Block]:
    """All blocks of an order, drawn by so many processes; with one, by this process.

    Raises:
        DataError: a process died.
    """
    processes = min(processes, len(order.ranges()))
    if processes <= 1:
        yield from order.draw()
        return
    workers = [_start(replace(order, first=first, step=processes)) for first in range(processes)]
    try:
        for number, images in enumerate(order.ranges()):
            yield _read(workers[number % processes].stdout, len(images), order.resolution**2)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.communicate()


def _start(order: Order) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "subquad_datasets.pathfinder.worker",
        json.dumps(asdict(order)),
    ]
    # The parent's path, so that the packages are found however the parent found them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )


def _read(stream: IO[bytes] | None, count: int, length: int) -> Block:
    assert stream is not None
    data = stream.read(count * (length + 1))
    if len(data) < count * (length + 1):
        raise DataError("lra-pathfinder: a generating process died; try again, or with processes 1")
    flat = np.frombuffer(data, dtype=np.uint8)
    return flat[: count * length].reshape(count, length), flat[count * length :]


def main() -> None:
    """Draw and write."""
    try:
        for pixels, labels in Order(**json.loads(sys.argv[1])).draw():
            sys.stdout.buffer.write(pixels.tobytes() + labels.tobytes())
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # or the interpreter complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
