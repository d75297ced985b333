"""Pictures in shards as a data set. N samples of TRAIN's shards, n of a split."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from subquad.data import (
    NO_LABEL,
    ArrayBatch,
    Dataset,
    DataSpec,
    Split,
    SplitName,
    stratified_validation,
)
from subquad.errors import DataError
from subquad.plan import Permutation, PlanSettings, ShardWindow
from subquad.record.storage import fetched, is_remote, reaching
from subquad.record.stores import place_at
from subquad_datasets.augment.split import PictureSplit
from subquad_datasets.decode import check_decoder, decode
from subquad_datasets.guesses import majority
from subquad_datasets.imagenet import Config
from subquad_datasets.prepared import prepare_once
from subquad_datasets.shards.index import find_shards
from subquad_datasets.shards.reader import Shards, open_shards
from subquad_datasets.shards.source import chosen_classes, read_classes
from subquad_datasets.shards.write import CLASSES
from subquad_datasets.text.lines import find_file
from subquad_datasets.text.source import fingerprint

_WNID = re.compile(r"n\d{8}").fullmatch
_PICTURES = 1_281_167
_EACH = (732, 1300)
"""ImageNet-1k's training pictures, and the fewest and most of a class."""


@dataclass(frozen=True, kw_only=True)
class ShardSplit(PictureSplit):
    """Samples of shards.

    Attributes:
        shards: where they are.
        rows: (n,) int64, ascending: which samples of the shards.
    """

    config: Config
    shards: Shards
    rows: np.ndarray

    def picture(self, index: int) -> np.ndarray:
        data = self.shards.read(int(self.rows[index]), verify=self.config.verify == "always")
        return decode(data, self.config.decoder, max_pixels=self.config.max_pixels)

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        with self.shards.ahead(self.rows[indices % len(self)].tolist()):
            return super().fetch(indices, epoch=epoch, seed=seed)

    def name(self, index: int) -> str:
        return self.shards.name(int(self.rows[index % len(self)]))

    def digests(self) -> np.ndarray:
        """(n,) uint64, the beginning of each file's sha256, from the index."""
        return np.ascontiguousarray(self.shards.rows["sha256"][self.rows, :8]).view(np.uint64)[:, 0]

    def shuffled(self, settings: PlanSettings) -> Permutation:
        window = self.config.window
        if settings.bucket_batches or window is None:
            return super().shuffled(settings)
        sizes = np.bincount(self.shards.shard_of(self.rows), minlength=len(self.shards.paths))
        return ShardWindow(len(self), settings, tuple(sizes.tolist()), window)

    def subset(self, chosen: np.ndarray) -> ShardSplit:
        """The split of these of its samples, in this order."""
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])


class ImageNet(Dataset):
    """Labelled pictures in shards.

    ImageNet's own test labels are not public, and papers print its validation set. So that set is
    TEST here, and a validation part is cut from TRAIN, by class.
    """

    config: Config
    reads_addresses = True

    def prepare(self) -> None:
        """Open the indices of TRAIN and TEST, and with `verify: once` compare the sums of all
        shards.
        """
        check_decoder(self.config.decoder)
        self.prepared_test()

    def prepared_test(self) -> ShardSplit:
        return self._part(self._opened(self.config.test))

    def describe(self) -> DataSpec:
        size = self.config.size
        benchmark, note = self._kind()
        return DataSpec.images(
            size,
            size,
            num_classes=len(self._classes),
            class_names=self._classes,
            sizes=self._sizes(),
            benchmark=benchmark,
            notes=(note,),
        )

    def load(self, name: SplitName) -> ShardSplit:
        """Open a split. "train" and "trainval" are changed at random.

        Raises:
            DataError: no such shards, a shard that was changed, or no validation part can be cut.
        """
        if name == "test":
            return self.prepared_test()
        if name == "trainval":
            return replace(self._train, training=True)
        part = self._train.subset(self._cut[("train", "validation").index(name)])
        return replace(part, training=name == "train")

    def open_file(self, path: Path, *, labelled: bool) -> ShardSplit:
        """A shard with its index; a picture that cannot be read is an error, not left out."""
        split = replace(self._part(open_shards([path], self.root)), strict=True)
        if labelled:
            return split
        return replace(split, labels=np.full(len(split), NO_LABEL))

    def files_read(self) -> tuple[str, ...]:
        if self._names:
            content = f"{len(self._known)} names"
        else:
            content = "not there, so classes are called by their numbers"
        return (f"{CLASSES}: {content}",)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self._train, split)

    def _opened(self, pattern: str) -> Shards:
        paths = find_shards([pattern], self._folder)
        shards = open_shards(paths, self.root, self.config.cache_gb or 0.0)
        if self.config.verify == "once":
            key = {"set": "imagenet", "files": fingerprint(shards.paths), "sums": shards.sums}
            prepare_once(self.root / "imagenet", key, lambda _: shards.check_sums() or {})
        return shards

    @cached_property
    def _folder(self) -> str:
        """Where shards are read: the address itself, or its copy on this machine."""
        path = self.config.path
        return path if self.config.cache_gb is not None else str(fetched(path, self.root))

    @cached_property
    def _shards(self) -> Shards:
        return self._opened(self.config.train)

    @cached_property
    def _names(self) -> Path | None:
        """The file of names, where there is one."""
        folder = place_at(self._folder)
        if not is_remote(folder):
            return find_file(folder, CLASSES, endings=("",))
        names = folder / CLASSES
        with reaching(names, DataError):
            return fetched(str(names), self.root) if names.exists() else None

    @cached_property
    def _known(self) -> list[str]:
        """Names of the labels in the shards; their numbers, where there is no file of names."""
        numbers = range(int(self._shards.rows["label"].max()) + 1)
        if self._names:
            return read_classes(self._names)
        return [str(number) for number in numbers]

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        """The classes that are taken."""
        return tuple(
            chosen_classes(fetched(self.config.classes, self.root), self._known)
            if self.config.classes
            else self._known
        )

    @cached_property
    def _train(self) -> ShardSplit:
        return self._part(self._shards)

    def _part(self, shards: Shards) -> ShardSplit:
        """The samples of shards that are of the classes taken, with the labels that these have
        among them.
        """
        kinds = shards.rows["label"]
        if kinds.max() >= len(self._known):
            row = int(kinds.argmax())
            raise DataError(
                f"{shards.name(row)}: has label {kinds[row]}, and TRAIN has "
                f"{len(self._known)} classes"
            )
        position = {name: number for number, name in enumerate(self._classes)}
        labels = np.array([position.get(name, NO_LABEL) for name in self._known])[kinds]
        rows = np.flatnonzero(labels != NO_LABEL)
        if not len(rows):
            raise DataError(
                f"{shards.paths[0].parent}: no samples of the {len(self._classes)} classes taken"
            )
        return ShardSplit(config=self.config, labels=labels[rows], shards=shards, rows=rows)

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        train = self._train
        config = self.config
        return stratified_validation(
            train.labels, config.validation_fraction, config.split_seed, train.digests()
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self._train)}
        try:
            return {"train": len(self._cut[0]), "validation": len(self._cut[1]), **sizes}
        # too few pictures of a class: `trainval` still works, `load("train")` says why it does not
        except DataError:
            return sizes

    def _kind(self) -> tuple[str, str]:
        """The name in published tables, "" where these cannot be ImageNet's pictures, and what a
        reader must know.

        By names and numbers of classes, as the archives' sums do not survive sharding.
        """
        counts = np.bincount(self._train.labels, minlength=len(self._classes))
        classes = len(self._classes)
        least, most = _EACH
        whole = all(map(_WNID, self._classes)) and least <= counts.min() <= counts.max() <= most
        known = {100: "imagenet-100"} | ({1000: "imagenet-1k"} if counts.sum() == _PICTURES else {})
        if not whole or classes not in known:
            note = (
                f"stand-in data: {counts.sum():,} pictures of "
                f"{classes} classes in shards, not ImageNet"
            )
            return "", note
        return known[
            classes
        ], "TEST is ImageNet's published validation set; a validation part is cut from TRAIN"
