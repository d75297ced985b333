"""Which samples a step uses: a pure function of (seed, epoch), whatever the number of ranks or
loaders.

A split chooses its plan (`subquad.data.Split.plan`). Imports numpy, not torch.

Letters: N samples, S steps of an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from subquad.errors import ConfigError

UNTRIMMED = int(np.iinfo(np.int64).max)
"""Length of a sample without any real token: what a model makes of it may depend on its padding,
so it keeps it.
"""

_MOST_CUT = 10**9
"""Samples of all epochs together, in a plan whose epochs differ; a second cuts about a million."""

_SECOND = 1 << 63
"""Tells the key of the batches' (or shards') order from that of the samples' order; no epoch
comes this far.
"""

Cut = tuple[np.ndarray, np.ndarray]
"""An epoch: its samples in order, (N,) int64, and the bounds of its batches in that order,
(S+1,) int64.
"""


@dataclass(frozen=True)
class PlanSettings:
    """What an experiment asks of a plan.

    Attributes:
        batch_size: samples per optimiser step over all ranks.
        seed: the run's seed.
        steps: batches of the whole run; None: `epochs` says.
        epochs: epochs of the whole run; None: `steps` says.
        bucket_batches: `train.bucket_batches`, batches in a pool of like length; 0: nothing may be
            trimmed.
    """

    batch_size: int
    seed: int
    steps: int | None = None
    epochs: int | None = None
    bucket_batches: int = 0


@dataclass(frozen=True, eq=False)
class Plan(ABC):
    """Global batches over the indices 0 .. N-1, each once an epoch. Compared by identity, so that
    epochs are cached.

    Attributes:
        num_samples: N, the size of the training split.
        settings: what the experiment asks for.
    """

    num_samples: int
    settings: PlanSettings

    @abstractmethod
    def cut(self, epoch: int) -> Cut:
        """The batches of an epoch: a pure function of the seed and `epoch`, independent of ranks
        and processes.
        """

    def length(self, indices: np.ndarray) -> int | None:
        """The positions that a global batch is trimmed to; None, the default: it is not.

        It may trim only where `settings.bucket_batches` is set, which has been held against model
        and data.
        """
        return None

    def batch(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch and global sample indices (int64) of the batch after `step` batches."""
        epoch, position = self.place(step)
        order, bounds = _cut(self, epoch)
        return epoch, order[bounds[position] : bounds[position + 1]]

    def steps_of(self, epoch: int) -> int:
        """Batches of an epoch; epochs may differ."""
        _, bounds = _cut(self, epoch)
        return len(bounds) - 1

    def place(self, step: int) -> tuple[int, int]:
        """Epoch, and position in it, of the batch after `step` batches."""
        ends = self._ends
        while ends[-1] <= step:
            ends.append(ends[-1] + self.steps_of(len(ends) - 1))
        epoch = bisect_right(ends, step) - 1
        return epoch, step - ends[epoch]

    def epochs(self, step: int) -> float:
        """Epochs that `step` batches are."""
        epoch, position = self.place(step)
        steps = self.steps_of(epoch)
        return (epoch * steps + position) / steps

    def drawn_order(self, count: int, epoch: int) -> np.ndarray:
        """(count,) int64, a random order of what an epoch's samples are in: batches, or shards."""
        return _epoch_order(count, self.seed, epoch | _SECOND)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    @property
    def seed(self) -> int:
        return self.settings.seed

    @cached_property
    def steps_per_epoch(self) -> int:
        """Batches of the first epoch."""
        return self.steps_of(0)

    @cached_property
    def total_steps(self) -> int:
        """Batches in the whole run."""
        if self.settings.steps:
            return self.settings.steps
        return self.steps_before(self.settings.epochs or 0)

    def steps_before(self, epochs: int) -> int:
        """Batches of so many epochs together.

        Raises:
            ConfigError: epochs differ, and these are too many to cut them all.
        """
        if epochs * self.num_samples > _MOST_CUT:
            raise ConfigError(
                f"train.epochs: got {epochs}: epochs of this data set differ in "
                "their number of batches, so all are cut at the start, which "
                f"is done for {_MOST_CUT:,} samples at most; give train.steps"
            )
        return sum(map(self.steps_of, range(epochs)))

    @cached_property
    def _ends(self) -> list[int]:
        """Batches before each epoch, as far as somebody asked: the same whichever step was asked
        for first.
        """
        return [0]

    def notes(self) -> list[str]:
        """What a reader of the run's numbers needs."""
        if self.batch_size <= self.num_samples:
            return []
        return [
            f"train.batch_size: {self.batch_size} asked, but there are {self.num_samples} "
            "training samples, so no batch is larger"
        ]

    def numbers(self) -> dict[str, int]:
        """What a reader of the run's folder needs."""
        names = ("num_samples", "batch_size", "seed", "total_steps", "steps_per_epoch")
        return {name: getattr(self, name) for name in names}


@lru_cache(maxsize=4)
def _cut(plan: Plan, epoch: int) -> Cut:
    return plan.cut(epoch)


def _epoch_order(num_samples: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0 .. num_samples-1, int64.

    Sorting raw counter-based random words keeps it equal over NumPy versions, which promise the
    stability of a bit generator's stream but not of `permutation`.
    """
    return np.argsort(_words(num_samples, seed, epoch), kind="stable")


def _words(count: int, seed: int, stream: int) -> np.ndarray:
    return np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)).random_raw(count)


@dataclass(frozen=True, eq=False)
class Permutation(Plan):
    """All samples in random order, cut into batches of one size; the last of an epoch may be
    smaller.
    """

    def order(self, epoch: int) -> np.ndarray:
        """(N,) int64, the samples of an epoch."""
        return _epoch_order(self.num_samples, self.seed, epoch)

    def cut(self, epoch: int) -> Cut:
        bounds = np.arange(self.steps_per_epoch + 1, dtype=np.int64) * self.batch_size
        bounds = np.minimum(bounds, self.num_samples)
        return self.order(epoch), bounds

    def steps_of(self, epoch: int) -> int:
        return -(-self.num_samples // self.batch_size)

    def steps_before(self, epochs: int) -> int:
        return epochs * self.steps_per_epoch

    def place(self, step: int) -> tuple[int, int]:
        return divmod(step, self.steps_per_epoch)


@dataclass(frozen=True, eq=False)
class Buckets(Permutation):
    """Batches of samples of like length, so that little padding is computed.

    The permutation is taken in pools of `settings.bucket_batches` batches; each pool is sorted by
    length and cut into batches, and the epoch's batches are put into a random order. What is left
    for the smaller last batch is the permutation's end, unsorted: sorted it would hold the longest
    samples of its pool in every epoch, and their gradients would weigh more than others'.

    Attributes:
        lengths: (N,) int64, `UNTRIMMED` for a sample without real tokens.
    """

    lengths: np.ndarray

    def order(self, epoch: int) -> np.ndarray:
        order = super().order(epoch)
        num_whole = len(order) - (len(order) % self.batch_size)
        whole = order[:num_whole]
        batches = np.concatenate([whole[:0], *_sorted_pools(whole, self.lengths, self.settings)])
        batches = batches.reshape(-1, self.batch_size)
        shuffled = batches[self.drawn_order(len(batches), epoch)]
        last = order[num_whole:]
        return np.concatenate([shuffled.ravel(), last])

    def length(self, indices: np.ndarray) -> int:
        return int(self.lengths[indices].max())


def _sorted_pools(
    order: np.ndarray, lengths: np.ndarray, settings: PlanSettings
) -> list[np.ndarray]:
    """The permutation in pools, each sorted by length."""
    size = settings.bucket_batches * settings.batch_size
    pools = []
    for start in range(0, len(order), size):
        pool = order[start : start + size]
        pools.append(pool[np.argsort(lengths[pool], kind="stable")])
    return pools


@dataclass(frozen=True, eq=False)
class TokenBudget(Plan):
    """Batches of samples of like length that hold at most so many tokens, padding included.

    Pools and the order of batches are as in `Buckets`; each pool is cut into as few batches as fit.
    Epochs differ in their number of batches, so a run of `epochs` cuts all of them at its start:
    give `steps` where data are large.

    Attributes:
        lengths: (N,) int64, at least 1.
        tokens: the longest sample's length times the samples of a batch is at most this.

    Raises:
        ConfigError: a sample has no length or is longer than `tokens`, or nothing may be trimmed.
    """

    lengths: np.ndarray
    tokens: int

    def __post_init__(self) -> None:
        if not self.settings.bucket_batches:
            raise ConfigError(
                "train.bucket_batches: got 0, and this data set makes batches of so many tokens, "
                "which needs pools of like length; use 1 or more"
            )
        if not len(self.lengths):
            return
        shortest = self.lengths.min()
        longest = self.lengths.max()
        if shortest < 1 or longest > self.tokens:
            raise ConfigError(
                f"a batch of at most {self.tokens} tokens takes samples "
                f"of 1 to {self.tokens} tokens, and this data set has "
                f"samples of {shortest} to {longest}"
            )

    def cut(self, epoch: int) -> Cut:
        order = _epoch_order(self.num_samples, self.seed, epoch)
        batches = []
        for pool in _sorted_pools(order, self.lengths, self.settings):
            batches += self._filled(pool)
        ranks = self.drawn_order(len(batches), epoch)
        shuffled = [order[:0]]
        bounds = [0]
        for rank in ranks:
            batch = batches[rank]
            shuffled.append(batch)
            bounds.append(bounds[-1] + len(batch))
        return np.concatenate(shuffled), np.array(bounds, dtype=np.int64)

    def _filled(self, pool: np.ndarray) -> list[np.ndarray]:
        """A pool in ascending length, from its start as many samples a batch as the budget
        takes.
        """
        lengths = self.lengths[pool]
        counts = np.arange(1, len(pool) + 1)
        batches = []
        start = 0
        while start < len(pool):
            most = self.tokens // int(lengths[start])
            near = lengths[start : start + most]
            padded = near * counts[: len(near)]
            stop = start + int(np.searchsorted(padded, self.tokens, side="right"))
            batches.append(pool[start:stop])
            start = stop
        return batches

    def length(self, indices: np.ndarray) -> int:
        return int(self.lengths[indices].max())


@dataclass(frozen=True, eq=False)
class ShardWindow(Permutation):
    """For samples that lie in shards, which are best read from start to end.

    The shards come in random order, and the samples of their sequence are shuffled within windows,
    so that a batch needs the shards of one window or two. Sample i of a shard has the global index
    "sizes of the shards before" + i.

    Attributes:
        sizes: samples of each shard; N together.
        window: samples that are shuffled among themselves, at least 1.

    Raises:
        ConfigError: the sizes do not add up to N, or the window is empty.
    """

    sizes: tuple[int, ...]
    window: int

    def __post_init__(self) -> None:
        total = sum(self.sizes)
        if total != self.num_samples or min(self.sizes, default=0) < 0:
            raise ConfigError(f"shards of {total} samples for a split of {self.num_samples}")
        if self.window < 1:
            raise ConfigError(f"a window of {self.window} samples; use 1 or more")

    def order(self, epoch: int) -> np.ndarray:
        indices = np.arange(self.num_samples)
        shards = np.split(indices, np.cumsum(self.sizes, dtype=np.int64)[:-1])
        read = [indices[:0], *(shards[rank] for rank in self.drawn_order(len(self.sizes), epoch))]
        windows = indices // self.window
        places = np.lexsort((_words(self.num_samples, self.seed, epoch), windows))
        return np.concatenate(read)[places]
