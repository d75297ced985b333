"""Which samples a step uses: a pure function of (seed, epoch), whatever the number of workers or loaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Plan:
    """Global batches over the indices 0 .. num_samples-1; the last batch of an epoch may be smaller.

    Attributes:
        num_samples: size of the training split.
        batch_size: samples per optimiser step over all workers.
        seed: the run's seed.
        total_steps: batches in the whole run.
    """

    num_samples: int
    batch_size: int
    seed: int
    total_steps: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_samples // self.batch_size)

    def batch(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch and global sample indices (int64) of the batch after `step` batches."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch_size
        return epoch, epoch_order(self.num_samples, self.seed, epoch)[start : start + self.batch_size]


@lru_cache(maxsize=4)
def epoch_order(num_samples: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0 .. num_samples-1, int64.

    Sorting raw counter-based random words keeps it equal over NumPy versions, which promise the stability of a bit
    generator's stream but not of `permutation`.
    """
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(num_samples)
    return np.argsort(words, kind="stable")


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
    """

    epoch: int
    indices: np.ndarray
    real: bool = True


def requests(plan: Plan, step: int, rank: int, world_size: int, micro_batch: int | None) -> list[Request]:
    """The forward passes of one rank in one step. Every rank gets equally many, so collective calls pair up."""
    epoch, indices = plan.batch(step)
    largest = -(-len(indices) // world_size)
    size = min(micro_batch or largest, largest)
    mine = share(indices, rank, world_size)
    chunks = [mine[start : start + size] for start in range(0, largest, size)]
    return [Request(epoch, chunk) if len(chunk) else Request(epoch, indices[:1], real=False) for chunk in chunks]


def evaluation_requests(num_samples: int, rank: int, world_size: int, batch_size: int) -> Iterator[Request]:
    """Each sample exactly once over the ranks, equally many forward passes on each rank."""
    everything = np.arange(num_samples)
    mine = share(everything, rank, world_size)
    largest = -(-num_samples // world_size)
    for start in range(0, largest, batch_size):
        chunk = mine[start : start + batch_size]
        yield Request(0, chunk) if len(chunk) else Request(0, everything[:1], real=False)
