"""The dataset contract: description, splits and the sealed test split. Imports numpy, not torch.

A batch is a dictionary of arrays, one row per sample. `inputs`, `keep` and `labels` are the usual
names; a data set may have others, as its `DataSpec` says.

Letters: B batch, L length, C channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from subquad.data.digests import digest_of as digest_of
from subquad.data.digests import hashed as hashed
from subquad.data.spec import Array as Array
from subquad.data.spec import ArrayBatch as ArrayBatch
from subquad.data.spec import DataSpec as DataSpec
from subquad.errors import ConfigError, DataError
from subquad.plan import UNTRIMMED, Buckets, Permutation, Plan, PlanSettings
from subquad.plugin import Config

SplitName = Literal["train", "validation", "trainval", "test"]

NO_LABEL = -1
"""The label of a position that has none, where positions are labelled."""

_HASHED_AT_ONCE = 256


class Split(ABC):
    """Samples behind a global index 0 .. len-1."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def together(self) -> int:
        """How many samples, one after the other in a batch, one process must fetch at once: 2 where
        pairs are mixed. `train.micro_batch` has to be a multiple of it.
        """
        return 1

    @abstractmethod
    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """A collated batch.

        Args:
            indices: (B,) int64, global indices.
            epoch: randomness that belongs to a sample must be a pure function of (seed, epoch,
                global index).
            seed: the run's seed.

        Returns:
            the arrays that the data set's `DataSpec` names, such as `inputs` (B, L, C) float32 or
            (B, L) int64, `keep` (B, L) bool and `labels` (B,) int64. L must not depend on which
            samples share the batch, or losses would depend on how ranks cut it. `bad` (B,) bool
            tells samples that cannot be read: their other arrays are filler, without a label. The
            engine counts and names them, and stops at too many (`train.max_bad`).
        """

    def finish(self, batch: Any) -> Any:
        """What is left to do with a batch of `fetch` once it is on the device that computes, such
        as mixing images.

        A pure function of the batch: what is random in it was drawn by `fetch`.

        Args:
            batch: tensors by name; floating-point ones have the type of the model's parameters.

        Returns:
            the batch that model and task get; by default the same.
        """
        return batch

    def name(self, index: int) -> str:
        """What an error, a log and an answer call a sample, such as its file or key."""
        return f"sample {index}"

    def unreadable(self) -> np.ndarray:
        """(n,) int64: samples that are known to be `bad` before anything is fetched."""
        return np.zeros(0, np.int64)

    def lengths(self) -> np.ndarray | None:
        """How much of the axis "length" each sample needs: up to its last real token, of pairs the
        longer; 0 to L. For `train.bucket_batches`, so it must not cost reading all of the data.

        Returns:
            (N,) int64, or None where they are not known, the default.
        """
        return None

    def digests(self) -> np.ndarray:
        """(N,) uint64, equal for exact copies whatever their labels: here of what `fetch` gives.

        Asked for before training and after it. A split that holds its samples in another way may
        hash those.
        """
        pieces = [np.zeros(0, np.uint64)]
        for batch in self.batches():
            names = sorted(batch.keys() - {"labels"})
            rows = zip(*[np.ascontiguousarray(batch[name]) for name in names], strict=True)
            pieces.append(hashed(map(b"".join, rows)))
        return np.concatenate(pieces)

    def content(self) -> str:
        """SHA-256 (hex) of all that a model may see of this split, labels too, in its order: here
        of what `fetch` gives. With another one it is another split.

        Every start of a run asks for it. A split that holds its samples in another way may hash
        those (`digest_of`). What parameters of the data set say need not be in it, and where the
        data lie must not.
        """
        parts = (
            part for batch in self.batches() for pair in sorted(batch.items()) for part in pair
        )
        return digest_of(parts)

    def batches(self) -> Iterator[ArrayBatch]:
        """All samples in order, some at a time, as evaluation sees them."""
        for start in range(0, len(self), _HASHED_AT_ONCE):
            stop = min(start + _HASHED_AT_ONCE, len(self))
            yield self.fetch(np.arange(start, stop), epoch=0, seed=0)

    def plan(self, settings: PlanSettings) -> Plan:
        """The order in which this split is trained on: a permutation, or where asked for batches of
        like length.

        A split that knows better returns another `subquad.plan.Plan`, such as `TokenBudget` or
        `ShardWindow`.

        Raises:
            ConfigError: batches of like length are asked for, and the lengths are not known.
        """
        if not settings.bucket_batches:
            return Permutation(len(self), settings)
        lengths = sample_lengths(self)
        if lengths is None:
            raise ConfigError(
                f"train.bucket_batches: got {settings.bucket_batches}, needs the samples' lengths, "
                "which this data set does not give; use 0"
            )
        return Buckets(len(self), settings, lengths)


def sample_lengths(split: Split) -> np.ndarray | None:
    """(N,) int64: positions each sample of a split needs, `UNTRIMMED` without real tokens; None
    where not known.
    """
    lengths = split.lengths()
    if lengths is None:
        return None
    return np.where(lengths > 0, lengths, UNTRIMMED)


@dataclass(frozen=True)
class ArraySplit(Split):
    """A split held in memory: every array has one row per sample."""

    arrays: ArrayBatch

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def labels(self) -> np.ndarray:
        """(N,) labels."""
        return self.arrays["labels"]

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        return {name: values[indices] for name, values in self.arrays.items()}

    def lengths(self) -> np.ndarray | None:
        masks = [self.arrays[name] for name in ("keep", "keep_b") if name in self.arrays]
        if not masks:
            return None
        return np.max([_real_lengths(keep) for keep in masks], axis=0)


@dataclass(frozen=True)
class Subset(Split):
    """Some samples of a split, in this order.

    Attributes:
        split: the whole of them.
        chosen: (n,) int64, their global indices in the split.
    """

    split: Split
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        return self.split.fetch(self.chosen[indices], epoch=epoch, seed=seed)

    def finish(self, batch: Any) -> Any:
        return self.split.finish(batch)

    def name(self, index: int) -> str:
        return self.split.name(int(self.chosen[index]))

    def lengths(self) -> np.ndarray | None:
        lengths = self.split.lengths()
        if lengths is None:
            return None
        return lengths[self.chosen]


def _real_lengths(keep: np.ndarray) -> np.ndarray:
    """(N, L) bool, True = real token, to (N,) int64: one more than the place of the last real
    token, 0 without any.
    """
    lengths = keep.shape[1] - np.argmax(keep[:, ::-1], axis=1)
    return np.where(keep.any(axis=1), lengths, 0)


@dataclass(frozen=True)
class TestKey:
    """The key to a sealed test split. `engine.result.Seal` makes one when it writes the ledger;
    besides, only `trained.verify` does, for labels of a split that is open already.
    """

    __test__ = False  # not a pytest class

    dataset: str
    reason: str


class Dataset(ABC):
    """A data set. Built as `cls(config, root)`, which must be cheap: no reading, no download.

    Args:
        config: the plugin's parameters.
        root: the folder prepared data may be kept in.

    Attributes:
        reads_addresses: it is given addresses (s3://...) of its parameters that are paths as they
            are; else what they name is copied to this machine first.
    """

    reads_addresses: ClassVar[bool] = False

    def __init__(self, config: Config, root: Path):
        self.config = config
        self.root = root

    def prepare(self) -> None:  # noqa: B027  (a data set that ships with a library has nothing to prepare)
        """Download or generate what is missing: idempotent, checksummed, safe when several
        processes call it.
        """

    @abstractmethod
    def describe(self) -> DataSpec:
        """What batches hold, sizes, classes, lengths. Never reads the test split."""

    @abstractmethod
    def load(self, name: SplitName) -> Split:
        """Open a split. Call `split`, which guards the test split, instead."""

    def split(self, name: SplitName, key: TestKey | None = None) -> Split:
        """Open a split: "train" and "validation" are cut from TRAIN, "trainval" is all of it,
        "test" needs the key.

        Raises:
            DataError: the test split was asked for without its key.
        """
        if name == "test" and not isinstance(key, TestKey):
            raise DataError(
                "the test split is sealed: it opens once, in "
                "the final evaluation, and is recorded there"
            )
        return self.load(name)

    def open_file(self, path: Path, *, labelled: bool) -> Split:
        """The samples of a file of the user's, in the file's order, for `subquad predict` and
        `subquad eval`.

        Args:
            path: a file in the layout that the data set reads.
            labelled: each sample must have its label; else labels are `NO_LABEL`.

        Raises:
            DataError: what is wrong, with file and line; or, by default, this data set reads no
                such files.
        """
        raise DataError(f"{path}: data set {type(self).__name__} reads no files of its users")

    def prepared_test(self) -> Split | None:
        """TEST, where it is read or drawn before training anyway: copies of TRAIN in it then show
        before training.

        None, the default: nothing touches it before it is opened, and they show then.
        """
        return None

    def test_content(self) -> str | None:
        """`Split.content` of TEST; of one that is not read before it is opened, SHA-256 (hex) of
        its files, which opens nothing.

        None, the default where `prepared_test` is: it shows only when TEST is opened.
        """
        test = self.prepared_test()
        return None if test is None else test.content()

    def files_read(self) -> tuple[str, ...]:
        """How files of the user's were read, a line each, for `subquad data show`; TEST is left
        out.

        What orders rows, what columns are taken for, what was left out and why. Default: nothing is
        told.
        """
        return ()

    def reference_scores(self, split: Split) -> Mapping[str, float | Mapping[str, float | str]]:
        """Scores of guesses that need no trained model, such as always naming the commonest class.

        They are learned on TRAIN alone and scored on `split`: what a trained model has to beat. The
        engine asks once, for the test split, after the final evaluation, and keeps the answer in
        result.json; reports show it as rows. Has to be cheap: every run waits for it.

        Args:
            split: one of this data set's own, already open; no other is to be opened here but of
                TRAIN.

        Returns:
            by name the accuracy in [0, 1], such as {"majority": 0.17}, or other metrics of the test
            split, such as {"lead-3": {"rougeL": 0.21}}; empty where there are none. Beside metrics
            a guess may have a `note`, a text: what a reader must know of it.
        """
        return {}


def stratified_validation(
    labels: np.ndarray, fraction: float, seed: int, digests: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cut a validation part that holds each class in proportion, and at least one sample of each.

    Args:
        labels: (N,) integer labels.
        fraction: share of the samples that goes to validation, in (0, 1).
        seed: of the draw; the same seed gives the same cut.
        digests: (N,) `Split.digests`: copies go where the first of them goes, to training where the
            class would have half as much again in validation as it should. None: no copies.

    Returns:
        sorted indices of the training part and of the validation part.

    Raises:
        DataError: a class has too few different samples to be in both parts.
    """
    contents = np.arange(len(labels)) if digests is None else digests
    _, places, which = np.unique(contents, return_index=True, return_inverse=True)
    first = places[which]
    copies = np.bincount(first).tolist()
    originals = np.sort(places)
    originals = originals[np.argsort(labels[originals], kind="stable")]
    generator = np.random.Generator(np.random.Philox(seed))
    chosen = list[int]()
    for members in np.split(originals, np.flatnonzero(np.diff(labels[originals])) + 1):
        drawn = generator.permutation(members).tolist()
        most = min(max(1, round(fraction * len(drawn))), len(drawn) - 1)
        room = 1 + 1.5 * fraction * sum(copies[row] for row in drawn)
        taken = list[int]()
        for row in drawn:
            if copies[row] <= room and len(taken) < most:
                room -= copies[row]
                taken.append(row)
        chosen += taken or [min(drawn, key=copies.__getitem__)]
    held = np.isin(first, chosen)
    if (lacking := np.setxor1d(labels[held], labels[~held])).size:
        own = first[labels == lacking[0]]
        different = len(np.unique(own))
        kind = "training" if different == len(own) else "different training"
        raise DataError(
            f"class {lacking[0]} has {different} {kind} sample: too few to cut a stratified "
            "validation split; use protocol: fixed (all of TRAIN, a fixed number of epochs)"
        )
    return np.flatnonzero(~held), np.flatnonzero(held)
