"""Exactly as many different expressions as are wanted, the same ones for any number of
processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count

import numpy as np

from subquad.errors import DataError
from subquad_datasets.listops.trees import TRIES, Block, Shape, draw_block
from subquad_datasets.listops.worker import read_block

BARREN = 2000
"""Blocks in a row without a new expression after which the rest is taken not to exist: two
million trees.
"""


def different(
    shape: Shape, stream: int, wanted: int, processes: int, digests: set[bytes]
) -> Iterator[Block]:
    """Blocks with `wanted` expressions in all: the first different ones of a stream, in its order.

    Args:
        shape: what is drawn.
        stream: of the seed.
        wanted: how many.
        processes: that draw.
        digests: digests of expressions to leave out; those yielded are added.

    Raises:
        DataError: there are not so many, or a generating process died.
    """
    missing = wanted
    barren = 0
    with blocks(shape, stream, processes) as drawn:
        for block in drawn:
            new = _new_rows(block, digests, missing)
            if len(new):
                barren = 0
            else:
                barren = barren + 1
            if len(new):
                missing -= len(new)
                yield pick(block, new)
            if not missing:
                return
            if barren == BARREN:
                raise DataError(
                    f"lra-listops: {wanted - missing} of {wanted} different "
                    "expressions found, and none in the last "
                    f"{BARREN * TRIES:,} trees: widen min_length .. max_length, "
                    "raise max_depth, or ask for fewer"
                )


@contextmanager
def blocks(shape: Shape, stream: int, processes: int) -> Iterator[Iterator[Block]]:
    """All blocks of a stream in order, drawn by so many processes; with one, by this process."""
    if processes == 1:
        yield (draw_block(shape, stream, number) for number in count())
        return
    workers = [_start(shape, stream, first, processes) for first in range(processes)]
    try:
        yield _in_turn(workers)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.communicate()


def pick(block: Block, rows: np.ndarray) -> Block:
    """Some expressions of a block, in the order of `rows`, which ascend."""
    if len(rows) == len(block.lengths):
        return block
    mask = np.zeros(len(block.lengths), dtype=bool)
    mask[rows] = True
    return Block(
        block.tokens[np.repeat(mask, block.lengths)], block.lengths[mask], block.labels[mask]
    )


def _new_rows(block: Block, digests: set[bytes], limit: int) -> np.ndarray:
    """The first `limit` expressions that were not seen; they are now. Digests: 16 bytes instead
    of a thousand.
    """
    written = block.tokens.tobytes()
    new = []
    start = 0
    for row, length in enumerate(block.lengths.tolist()):
        digest = hashlib.blake2b(written[start : start + length], digest_size=16).digest()
        start += length
        if digest not in digests and len(new) < limit:
            digests.add(digest)
            new.append(row)
    return np.array(new, dtype=np.int64)


def _start(shape: Shape, stream: int, first: int, step: int) -> subprocess.Popen[bytes]:
    order = json.dumps({"shape": asdict(shape), "stream": stream, "first": first, "step": step})
    command = [sys.executable, "-P", "-m", "subquad_datasets.listops.worker", order]
    # The parent's path, so that the packages are found however the parent found them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )


def _in_turn(workers: list[subprocess.Popen[bytes]]) -> Iterator[Block]:
    for number in count():
        output = workers[number % len(workers)].stdout
        assert output is not None
        try:
            yield read_block(output)
        except EOFError as error:
            raise DataError(
                "lra-listops: a generating process died; try again, or with processes 1"
            ) from error
