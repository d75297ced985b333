"""Folders of pictures as a data set: which there are, their splits, and what is remembered of their
bytes.

N pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import (
    NO_LABEL,
    Dataset,
    DataSpec,
    Split,
    SplitName,
    hashed,
    stratified_validation,
)
from subquad.errors import DataError
from subquad.security.limits import read_whole
from subquad.suggest import did_you_mean
from subquad_datasets.augment.split import PictureSplit
from subquad_datasets.class_names import first_alike
from subquad_datasets.decode import Decoder, UnreadableImage, check_decoder, decode
from subquad_datasets.guesses import majority
from subquad_datasets.image.files import find_images
from subquad_datasets.image_folder import Config
from subquad_datasets.prepared import prepare_once
from subquad_datasets.text.source import fingerprint, list_files, list_folders

VERSION = 4
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_TOLD = 5
"""Files that a line names."""

_DIGESTS = "digests.npy"
_BAD = "bad.npy"


@dataclass(frozen=True, kw_only=True)
class FolderSplit(PictureSplit):
    """Picture files.

    Attributes:
        files: one a sample.
        hashes: (N,) uint64 of their bytes, and
        bad: (N,) bool, which cannot be read; both empty where nobody asks.
        decoder: what reads JPEGs.
        max_pixels: larger pictures are not read.
    """

    files: tuple[Path, ...]
    hashes: np.ndarray
    bad: np.ndarray
    decoder: Decoder
    max_pixels: int

    def picture(self, index: int) -> np.ndarray:
        try:
            data = read_whole(self.files[index])
        except OSError as error:
            raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
        except DataError as error:
            raise UnreadableImage(str(error)) from error
        return decode(data, self.decoder, max_pixels=self.max_pixels)

    def name(self, index: int) -> str:
        return str(self.files[index % len(self)])

    def digests(self) -> np.ndarray:
        return self.hashes

    def unreadable(self) -> np.ndarray:
        return np.flatnonzero(self.bad)

    def rows(self, chosen: np.ndarray) -> FolderSplit:
        """Some of the samples."""
        files = tuple(self.files[row] for row in chosen.tolist())
        labels = self.labels[chosen]
        hashes = self.hashes[chosen]
        return replace(self, files=files, labels=labels, hashes=hashes, bad=self.bad[chosen])


class ImageFolder(Dataset):
    """Pictures in folders of classes. Each is read once before training, to find copies and what
    cannot be read.
    """

    config: Config

    def prepare(self) -> None:
        """Read all files, so that copies of TRAIN in TEST, and what cannot be read, show before
        training.
        """
        check_decoder(self.config.decoder)
        self.prepared_test()

    def prepared_test(self) -> FolderSplit:
        return self.load("test")

    def describe(self) -> DataSpec:
        size = self.config.size
        return DataSpec.images(
            size,
            size,
            num_classes=len(self._classes),
            class_names=self._classes,
            sizes=self._sizes(),
            notes=self._notes,
        )

    def load(self, name: SplitName) -> FolderSplit:
        """Open a split. "train" and "trainval" are changed at random.

        Raises:
            DataError: folders that are missing, empty or of other classes, or no part can be cut.
        """
        if name == "test":
            return self._parts[1]
        if name == "trainval":
            return replace(self._parts[0], training=True)
        part = self._parts[0].rows(self._cut[("train", "validation").index(name)])
        return replace(part, training=name == "train")

    def open_file(self, path: Path, *, labelled: bool) -> FolderSplit:
        """A picture, or those of a folder by name; where labelled, of its folders, which have the
        names of classes.

        Raises:
            DataError: there are none, or of a class that TRAIN has not; and as they are fetched,
                one cannot be read.
        """
        if labelled:
            split = self._split_of(path)
        else:
            if path.is_dir():
                files = tuple(list_files(path, *ENDINGS))
            else:
                files = (path,)
            split = self._split(files, np.full(len(files), NO_LABEL))
        if not len(split):
            raise DataError(f"{path}: no pictures ({', '.join(ENDINGS)})")
        return replace(split, strict=True)

    def files_read(self) -> tuple[str, ...]:
        """Of TRAIN and the validation part: pictures that cannot be read, and files that are no
        pictures.
        """
        train = self._parts[0]
        bad = [train.name(row) for row in train.unreadable().tolist()]
        lines = [f"pictures that cannot be read: {len(bad)} of {len(train)}{_named(bad)}"]
        folders = [self._train_folder, *([self._validation] if self._validation else [])]
        for folder in folders:
            others = [
                name for name in _others(folder) if folder != self._path or name != "validation"
            ]
            lines.append(f"other files in {folder.name}, not read: {len(others)}{_named(others)}")
        return tuple(lines)

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self._parts[0], split)

    @property
    def _path(self) -> Path:
        return Path(self.config.path).absolute()

    @cached_property
    def _classes(self) -> tuple[str, ...]:
        return _classes(self._train_folder)

    @property
    def _train_folder(self) -> Path:
        if (self._path / "train").is_dir():
            return self._path / "train"
        return self._path

    @cached_property
    def _parts(self) -> tuple[FolderSplit, FolderSplit]:
        """All of TRAIN, the pictures of a folder `validation` last, and TEST."""
        fraction = self.config.test_fraction
        test = self._path / "test"
        if not self._path.is_dir():
            raise DataError(f"dataset.params.path: {self._path} is not a folder")
        if self._train_folder == self._path and test.is_dir():
            raise DataError(f"dataset.params.path: {self._path} has a folder test, but none train")
        if test.is_dir() == (fraction is not None):
            raise DataError(_about_test(test, fraction))
        train = self._split_of(self._train_folder)
        if self._validation:
            train = _joined(train, self._split_of(self._validation))
        train = self._hashed(train)
        if fraction is None:
            return train, self._hashed(self._split_of(test))
        rest, held = self._stratified(train, fraction)
        return train.rows(rest), replace(train.rows(held), notes=())

    @property
    def _validation(self) -> Path | None:
        """The folder of the validation part; below a folder of classes one of that name is a
        class.
        """
        folder = self._path / "validation"
        return folder if folder.is_dir() and self._train_folder != self._path else None

    @property
    def _notes(self) -> tuple[str, ...]:
        if self.config.test_fraction is None:
            return ()
        train, test = map(len, self._parts)
        return (
            f"TEST is a part of the pictures ({test} of {train + test}), drawn "
            f"with seed {self.config.split_seed}",
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {"trainval": len(self._parts[0])}
        try:
            return {**dict(zip(("train", "validation"), map(len, self._cut), strict=True)), **sizes}
        # too few pictures of a class: `trainval` still works, `load("train")` says why it does not
        except DataError:
            return sizes

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray]:
        train = self._parts[0]
        folder = self._validation
        if folder is None:
            return self._stratified(train, self.config.validation_fraction)
        own = np.array([file.is_relative_to(folder) for file in train.files])
        return np.flatnonzero(~own), np.flatnonzero(own)

    def _stratified(self, split: FolderSplit, fraction: float) -> tuple[np.ndarray, np.ndarray]:
        return stratified_validation(
            split.labels, fraction, self.config.split_seed, split.digests()
        )

    def _split_of(self, folder: Path) -> FolderSplit:
        """The pictures of a folder of classes, not hashed."""
        if wrong := sorted(set(_classes(folder)) - set(self._classes)):
            known = f"no class of TRAIN{did_you_mean(wrong[0], self._classes)}"
            raise DataError(
                f"{folder / wrong[0]}: {known}; TRAIN has {', '.join(self._classes[:10])}"
            )
        images = find_images(folder.parent, None, folder.name, ENDINGS)
        assert images is not None
        labels = [self._classes.index(place[0]) for place in images.places]
        return self._split(tuple(images.files()), np.array(labels, np.int64))

    def _split(self, files: tuple[Path, ...], labels: np.ndarray) -> FolderSplit:
        config = self.config
        reading = {"decoder": config.decoder, "max_pixels": config.max_pixels}
        unknown = {"hashes": np.zeros(0, np.uint64), "bad": np.zeros(0, bool)}
        return FolderSplit(config=config, labels=labels, files=files, **unknown, **reading)

    def _hashed(self, split: FolderSplit) -> FolderSplit:
        key = {"set": "image-folder", "version": VERSION, "files": fingerprint(split.files)}
        key |= {"decoder": split.decoder, "max_pixels": split.max_pixels}

        def build(folder: Path) -> dict[str, Any]:
            bad = list[bool]()
            np.save(folder / _DIGESTS, hashed(_contents(split, bad)))
            np.save(folder / _BAD, np.array(bad))
            return {"pictures": len(split), "folder": str(self._path)}

        folder = prepare_once(self.root / "image-folder", key, build)
        return replace(split, hashes=np.load(folder / _DIGESTS), bad=np.load(folder / _BAD))


def _classes(folder: Path) -> tuple[str, ...]:
    """Names of the folders in it, sorted; each must have pictures."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    names = list_folders(folder)
    if empty := [name for name in names if not list_files(folder / name, *ENDINGS)]:
        raise DataError(f"{folder / empty[0]}: no pictures ({', '.join(ENDINGS)}) of this class")
    if not names:
        raise DataError(f"{folder}: no folders of classes")
    if alike := first_alike(names):
        raise DataError(
            f"{folder / alike[1]}: looks like the class {alike[0]}; one class is one folder"
        )
    return tuple(names)


def _named(names: list[str]) -> str:
    """The first of them."""
    more = ", ..." if len(names) > _TOLD else ""
    if names:
        return f" ({', '.join(names[:_TOLD])}{more})"
    return ""


def _about_test(test: Path, fraction: float | None) -> str:
    if fraction is None:
        return (
            f"{test}: no such folder, and every protocol tests on it: add it, or give "
            "dataset.params.test_fraction=0.2"
        )
    return f"dataset.params.test_fraction: got {fraction:g}, but there is {test}; leave it null"


def _joined(first: FolderSplit, second: FolderSplit) -> FolderSplit:
    return replace(
        first,
        files=first.files + second.files,
        labels=np.concatenate([first.labels, second.labels]),
    )


def _contents(split: FolderSplit, bad: list[bool]) -> Iterator[bytes]:
    """The bytes of each file; whether it cannot be decoded is appended to `bad`."""
    for file in split.files:
        try:
            data = read_whole(file)
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
        try:
            decode(data, split.decoder, max_pixels=split.max_pixels)
        except UnreadableImage:
            bad.append(True)
        else:
            bad.append(False)
        yield data


def _others(folder: Path) -> list[str]:
    """What lies in a folder of classes and is not read, by place below it."""
    read = {folder / name for name in list_folders(folder)}
    others = [path for path in sorted(folder.iterdir()) if path not in read]
    for inner in sorted(read):
        pictures = {*list_files(inner, *ENDINGS)}
        others += [path for path in sorted(inner.iterdir()) if path not in pictures]
    return [path.relative_to(folder).as_posix() for path in others]
