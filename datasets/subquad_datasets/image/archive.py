"""CIFAR-10's python archive: a folder `cifar-10-batches-py`, or the tar with it. N images."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import read_whole
from subquad_datasets.image.gray import to_gray
from subquad_datasets.image.unpickle import read_pickle
from subquad_datasets.tars import in_tar, tar_content

FOLDER = "cifar-10-batches-py"
META = "batches.meta"
BATCHES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
OFFICIAL = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
"""md5 of the released files. They tell a copy from the original; md5 proves nothing against a
forger.
"""


@dataclass(frozen=True)
class Archive:
    """The archive's files.

    Attributes:
        path: the folder with the batches, or the tar.
        members: for a tar, the member of each batch; for a folder, empty.
    """

    path: Path
    members: dict[str, tarfile.TarInfo]

    def files(self) -> list[Path]:
        """What the contents depend on."""
        names = (META, *(name for batches in BATCHES.values() for name in batches))
        if self.members:
            return [self.path]
        return [path for name in names if (path := self.path / name).is_file()]

    def has(self, split: str) -> bool:
        """Whether any batch of the split is there."""
        return any(name in self.members or (self.path / name).is_file() for name in BATCHES[split])

    def images(
        self, split: str, side: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], list[str]]:
        """Gray values, labels and class names of a split, and the files that are not the released
        ones.

        Returns:
            (N, side * side) uint8, (N,) int64, class names, names of files.

        Raises:
            DataError: a batch is missing or malformed.
        """
        files = dict(self._read((META, *BATCHES[split])))
        other = [name for name, data in files.items() if _md5(data) != OFFICIAL[name]]
        classes = _classes(read_pickle(files.pop(META), self._name(META)), self._name(META))
        parts = [
            _batch(read_pickle(files[name], self._name(name)), self._name(name), side, len(classes))
            for name in files
        ]
        gray, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return gray, labels, classes, other

    def _name(self, batch: str) -> str:
        return str(self.path / batch)

    def _read(self, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
        missing = [
            name for name in names if name not in self.members and not (self.path / name).is_file()
        ]
        if missing:
            raise DataError(f"{self.path}: {missing[0]} is missing")
        if not self.members:
            yield from ((name, read_whole(self.path / name)) for name in names)
            return
        with in_tar(self.path) as tar:
            for name in names:
                yield name, tar_content(self.path, tar, self.members[name])


def find_archive(path: Path, members: list[tarfile.TarInfo] | None) -> Archive | None:
    """The archive at `path`, None where there is none.

    Args:
        path: a folder or a tar.
        members: the tar's members, None for a folder.
    """
    if members is not None:
        members_by_name = {Path(member.name).name: member for member in members if member.isfile()}
        batches = {name: members_by_name[name] for name in OFFICIAL if name in members_by_name}
        if META in batches:
            return Archive(path, batches)
        return None
    folders = (path, path / FOLDER)
    return next((Archive(folder, {}) for folder in folders if (folder / META).is_file()), None)


def _classes(meta: dict[str, Any], name: str) -> tuple[str, ...]:
    labels = meta.get("label_names")
    if (
        not isinstance(labels, list)
        or not labels
        or not all(isinstance(label, bytes | str) for label in labels)
    ):
        raise DataError(f"{name}: no list of class names under 'label_names'")
    return tuple(label.decode("latin-1") if isinstance(label, bytes) else label for label in labels)


def _batch(
    batch: dict[str, Any], name: str, side: int, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    data = batch.get("data")
    labels = batch.get("labels")
    width = 3 * side * side
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != width:
        if isinstance(data, np.ndarray):
            shape = data.shape
        else:
            shape = type(data).__name__
        raise DataError(
            f"{name}: 'data' must be an array (images, {width}) with side {side}, not {shape}"
        )
    if not isinstance(labels, list) or len(labels) != len(data):
        raise DataError(
            f"{name}: 'labels' must be a list with one entry for each of {len(data)} images"
        )
    for number, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < num_classes:
            if type(label) is int:
                shown = repr(label)
            else:
                shown = type(label).__name__
            allowed = f"0 to {num_classes - 1}"
            raise DataError(f"{name}: label {shown} of image {number} must be {allowed}")
    return to_gray(data.reshape(-1, 3, side * side).transpose(0, 2, 1)), np.array(
        labels, dtype=np.int64
    )


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
