"""Which samples a step uses: a pure function of (seed, epoch), whatever the number of workers or loaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from subquad.engine.buckets import Buckets, bucketed


@dataclass(frozen=True)
class Plan:
    """Global batches over the indices 0 .. num_samples-1; the last batch of an epoch may be smaller.

    Attributes:
        num_samples: size of the training split.
        batch_size: samples per optimiser step over all workers.
        seed: the run's seed.
        total_steps: batches in the whole run.
        buckets: how samples of like length come into one batch; None: they do not.
    """

    num_samples: int
    batch_size: int
    seed: int
    total_steps: int
    buckets: Buckets | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_samples // self.batch_size)

    def batch(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch and global sample indices (int64) of the batch after `step` batches."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch_size
        return epoch, self._order(epoch)[start : start + self.batch_size]

    def length(self, indices: np.ndarray) -> int | None:
        """The positions that a global batch is trimmed to; None: it is not."""
        return self.buckets.longest(indices) if self.buckets else None

    def numbers(self) -> dict[str, int]:
        """What a reader of the run's folder needs."""
        named = ("num_samples", "batch_size", "seed", "total_steps", "steps_per_epoch")
        return {name: getattr(self, name) for name in named}

    def _order(self, epoch: int) -> np.ndarray:
        if self.buckets is None:
            return epoch_order(self.num_samples, self.seed, epoch)
        return bucketed_order(self.num_samples, self.buckets, self.batch_size, self.seed, epoch)


@lru_cache(maxsize=4)
def epoch_order(num_samples: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0 .. num_samples-1, int64.

    Sorting raw counter-based random words keeps it equal over NumPy versions, which promise the stability of a bit
    generator's stream but not of `permutation`.
    """
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(num_samples)
    return np.argsort(words, kind="stable")


@lru_cache(maxsize=4)
def bucketed_order(num_samples: int, buckets: Buckets, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """The same samples, int64, in batches of like length."""
    return bucketed(epoch_order(num_samples, seed, epoch), buckets, batch_size, seed, epoch)


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
