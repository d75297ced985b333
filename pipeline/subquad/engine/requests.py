"""Forward passes of one rank: how a global batch, or a split to be evaluated, is cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from subquad.plan import Plan


def share(indices: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The contiguous part of a global batch that one rank works on; sizes differ by at most one."""
    return np.array_split(indices, world_size)[rank] if world_size > 1 else indices


@dataclass(frozen=True)
class Request:
    """One forward pass of one rank.

    Attributes:
        epoch: for randomness that belongs to a sample.
        indices: global sample indices, never empty.
        real: False for a stand-in that keeps a rank in step where it has no sample left; it weighs nothing.
        length: positions that are kept of the padded arrays, that of the global batch's longest sample, so that ranks
            and micro-batches trim alike; None: all.
    """

    epoch: int
    indices: np.ndarray
    real: bool = True
    length: int | None = None


def requests(plan: Plan, step: int, rank: int, world_size: int, micro_batch: int | None) -> list[Request]:
    """The forward passes of one rank in one step. Every rank gets equally many, so collective calls pair up."""
    epoch, indices = plan.batch(step)
    length = plan.length(indices)
    largest = -(-len(indices) // world_size)
    size = min(micro_batch or largest, largest)
    mine = share(indices, rank, world_size)
    chunks = [mine[start : start + size] for start in range(0, largest, size)]
    return [_request(epoch, chunk, indices[:1], length) for chunk in chunks]


def _request(epoch: int, chunk: np.ndarray, stand_in: np.ndarray, length: int | None = None) -> Request:
    return Request(epoch, chunk, True, length) if len(chunk) else Request(epoch, stand_in, False, length)


def evaluation_requests(num_samples: int, rank: int, world_size: int, batch_size: int) -> Iterator[Request]:
    """Each sample exactly once over the ranks, equally many forward passes on each rank."""
    everything = np.arange(num_samples)
    mine = share(everything, rank, world_size)
    largest = -(-num_samples // world_size)
    for start in range(0, largest, batch_size):
        chunk = mine[start : start + batch_size]
        yield _request(0, chunk, everything[:1])


def sorted_evaluation_requests(lengths: np.ndarray, rank: int, world_size: int, batch_size: int) -> Iterator[Request]:
    """The same with samples of like length in each forward pass over all ranks, the longest first.

    So if memory runs out, it does at once.
    """
    order = np.argsort(-lengths, kind="stable")
    step = batch_size * world_size
    for start in range(0, len(order), step):
        together = order[start : start + step]
        yield _request(0, share(together, rank, world_size), together[:1], int(lengths[together[0]]))
