"""Which images there are: CIFAR-10's python archive, or image files in classes; in a folder or a
tar.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from subquad.errors import DataError
from subquad_datasets.image.archive import Archive, find_archive
from subquad_datasets.image.files import ImageFiles, find_images
from subquad_datasets.image.split import write_images
from subquad_datasets.tars import list_members
from subquad_datasets.text.source import fingerprint, sums

SplitPart = Literal["train", "test"]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PER_CLASS = {"train": 5_000, "test": 1_000}


class Source:
    """What lies at a path.

    Args:
        path: a folder or a tar.
        side: height and width that every image must have.

    Raises:
        DataError: nothing is there.
    """

    def __init__(self, path: Path, side: int):
        if not path.exists():
            raise DataError(f"dataset.params.path: {path} does not exist")
        self.path = path
        self.side = side

    @cached_property
    def _members(self) -> list[Any] | None:
        if self.path.is_dir():
            return None
        return list_members(self.path)

    @cached_property
    def archive(self) -> Archive | None:
        """The python archive, None where these are image files."""
        return find_archive(self.path, self._members)

    def find(self, split: SplitPart) -> Archive | ImageFiles | None:
        """Where the images of a split are, None where there are none."""
        if self.archive:
            return self.archive if self.archive.has(split) else None
        return find_images(self.path, self._members, split)

    def need(self, split: SplitPart) -> Archive | ImageFiles:
        """As `find`, with an error where there are none."""
        source = self.find(split)
        if source is None:
            raise DataError(
                f"dataset.params.path: {self.path} has neither CIFAR-10's batches of {split} nor "
                f"{split}/<class>/*.png, *.jpg"
            )
        return source

    def fingerprint(self, split: SplitPart) -> str:
        """Names, sizes and times of the files: another one, other contents. A tar is not opened
        for it.
        """
        return fingerprint([self.path] if self.path.is_file() else self.need(split).files())

    def pack(self, folder: Path, split: SplitPart) -> dict[str, Any]:
        """Write a split's images; a build of `prepare_once`.

        Returns:
            facts: "classes", "counts" of each class, "ordered" (whether the order is not class by
            class), "note", and "sources" (sha256 of what was read).
        """
        source = self.need(split)
        if isinstance(source, Archive):
            gray, labels, classes, other = source.images(split, self.side)
            note = _archive_note(other)
        else:
            gray, labels, formats = source.images(self.side)
            classes = source.classes
            note = _files_note(source, split, formats)
        write_images(folder, gray, labels)
        counts = np.bincount(labels, minlength=len(classes)).tolist()
        facts: dict[str, Any] = {"ordered": isinstance(source, Archive), "note": note}
        facts["sources"] = sums(source.files())
        return {"classes": list(classes), "counts": counts, **facts}


def _archive_note(other: list[str]) -> str:
    if not other:
        return ""
    return (
        "stand-in data: laid out as CIFAR-10, but "
        f"{', '.join(other)} differ from the released files (md5)"
    )


def _files_note(images: ImageFiles, split: SplitPart, formats: list[str]) -> str:
    kinds = " and ".join(formats)
    counts = Counter(place[0] for place in images.places)
    if counts != dict.fromkeys(CLASSES, _PER_CLASS[split]):
        return (
            f"stand-in data: {len(images.places)} {split} images "
            f"of {images.path.name} ({kinds}), not CIFAR-10"
        )
    if formats == ["PNG"]:
        return "CIFAR-10 (PNG files, not compared with the released archive)"
    return f"stand-in data: CIFAR-10 ({kinds}), a lossy copy of the released images"
