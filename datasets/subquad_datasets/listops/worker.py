"""A process that draws blocks for another one and writes them to its standard output.

Started by `generate.blocks`, not by users: `python -m subquad_datasets.listops.worker JSON`, with
the shape, the stream, the first block and the distance to the next. It goes on until its reader
closes the pipe.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from typing import IO

import numpy as np

from subquad_datasets.listops.trees import Block, Shape, draw_block

_COUNTS = 2 * np.dtype(np.int64).itemsize


def write_block(stream: IO[bytes], block: Block) -> None:
    """Numbers of sequences and tokens, then lengths, labels and tokens."""
    counts = np.array([len(block.lengths), len(block.tokens)], dtype=np.int64)
    for part in (counts, block.lengths, block.labels, block.tokens):
        stream.write(part.tobytes())
    stream.flush()


def read_block(stream: IO[bytes]) -> Block:
    """The next block of `write_block`.

    Raises:
        EOFError: the writer has ended.
    """
    rows, tokens = np.frombuffer(_exactly(stream, _COUNTS), dtype=np.int64).tolist()
    lengths = np.frombuffer(_exactly(stream, 8 * rows), dtype=np.int64)
    labels = np.frombuffer(_exactly(stream, rows), dtype=np.uint8)
    return Block(np.frombuffer(_exactly(stream, tokens), dtype=np.uint8), lengths, labels)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the generator's process ended early")
    return data


def main() -> None:
    """Draw until nobody reads."""
    order = json.loads(sys.argv[1])
    shape = Shape(**order["shape"])
    try:
        for number in count(order["first"], order["step"]):
            write_block(sys.stdout.buffer, draw_block(shape, order["stream"], number))
    except BrokenPipeError:
        # or the interpreter complains at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
