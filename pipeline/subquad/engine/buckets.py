"""Batches of samples of like length, so that little padding is computed: which samples, and how far they are cut.

Within an epoch the seeded permutation is taken in pools of some batches; each pool is sorted by length and cut into
batches, and the epoch's batches are put into a seeded random order. All of it is a pure function of (seed, epoch) and
the lengths, whatever the number of workers or loaders.

Letters: N samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from subquad.data import ArrayBatch, DataSpec, Split
from subquad.errors import ConfigError, DataError
from subquad.nn import Backbone

UNTRIMMED = int(np.iinfo(np.int64).max)
"""Length of a sample without any real token: what a model makes of it may depend on its padding, so it keeps it."""

SEQUENCES = ("inputs", "keep", "inputs_b", "keep_b")
"""Arrays of a batch with positions on their second axis."""

SECOND_KEY = 1 << 63
"""Tells the key of the batches' order from that of the samples' order; no epoch comes this far."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """How an epoch is bucketed. Compared by identity, so that orders can be cached.

    Attributes:
        lengths: (N,) int64, `UNTRIMMED` for a sample without real tokens.
        batches: batches in a pool, `train.bucket_batches`.
    """

    lengths: np.ndarray
    batches: int

    def longest(self, indices: np.ndarray) -> int:
        """The positions that a batch of these samples needs."""
        return int(self.lengths[indices].max())


@lru_cache(maxsize=4)
def _batch_rank(count: int, seed: int, epoch: int) -> np.ndarray:
    """A random order of `count` batches, independent of the samples' order; made like it, from raw words."""
    key = np.array([seed, epoch | SECOND_KEY], dtype=np.uint64)
    return np.argsort(np.random.Philox(key=key).random_raw(count), kind="stable")


def bucketed(order: np.ndarray, buckets: Buckets, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """An epoch's permutation, rearranged into batches of like length.

    What is left for the smaller last batch is the permutation's end, unsorted: sorted it would hold the longest
    samples of its pool in every epoch, and their gradients would weigh more than others'.

    Args:
        order: (N,) int64, the epoch's permutation.
        buckets: lengths, and how large a pool is.
        batch_size: samples of a batch.
        seed: the run's seed.
        epoch: the epoch.

    Returns:
        (N,) int64, to be cut into batches from its start.
    """
    whole = len(order) - len(order) % batch_size
    size = buckets.batches * batch_size
    pools = [order[start : min(start + size, whole)] for start in range(0, whole, size)]
    batches = [pool[np.argsort(buckets.lengths[pool], kind="stable")].reshape(-1, batch_size) for pool in pools]
    shuffled = [np.concatenate(batches)[_batch_rank(whole // batch_size, seed, epoch)].ravel()] if batches else []
    return np.concatenate([*shuffled, order[whole:]])


def sample_lengths(split: Split) -> np.ndarray | None:
    """(N,) int64: positions each sample of a split needs, `UNTRIMMED` without real tokens; None where not known."""
    lengths = split.lengths()
    return None if lengths is None else np.where(lengths > 0, lengths, UNTRIMMED)


def training_buckets(batches: int, spec: DataSpec, split: Split) -> Buckets:
    """How a training split is bucketed.

    Raises:
        ConfigError: its lengths are not known, or bucketing has no effect on it.
    """
    start = f"train.bucket_batches: got {batches}, "
    if spec.equal_length:
        raise ConfigError(f"{start}has no effect with this data set, whose sequences are equally long; use 0")
    if spec.target == "positions":
        raise ConfigError(f"{start}trims positions, and this data set labels them; use 0")
    lengths = sample_lengths(split)
    if lengths is None:
        raise ConfigError(f"{start}needs the samples' lengths, which this data set does not give; use 0")
    if (lengths >= spec.max_len).all():
        raise ConfigError(
            f"{start}has no effect with this data set, whose training sequences all have {spec.max_len} tokens; use 0"
        )
    return Buckets(lengths, batches)


def check_extra_losses(model: Backbone, batches: int) -> None:
    """Refuse mixers whose extra losses are trained on: nothing says that these leave padding out.

    Raises:
        ConfigError: names the losses.
    """
    weighed = {
        name for module in model.modules() for name, weight in getattr(module, "loss_weights", {}).items() if weight
    }
    if weighed:
        raise ConfigError(
            f"train.bucket_batches: got {batches}, trims padding, which the mixer's extra loss may count "
            f"({', '.join(sorted(weighed))}); use 0, or a weight of 0 for the loss, in mixer.params"
        )


def trimmed(arrays: ArrayBatch, length: int) -> ArrayBatch:
    """A batch without its positions from `length` on.

    Raises:
        DataError: one of them holds a real token.
    """
    for name in ("keep", "keep_b"):
        if name in arrays and arrays[name][:, length:].any():
            raise DataError(f"the data set gives a length of {length}, but {name} has real tokens beyond it")
    return {
        name: np.ascontiguousarray(values[:, :length]) if name in SEQUENCES else values
        for name, values in arrays.items()
    }
