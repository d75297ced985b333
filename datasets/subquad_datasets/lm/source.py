"""Which text is TRAIN, validation and TEST: a file for each, or one text cut by position. Read
line by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

from subquad.errors import DataError
from subquad_datasets.invented import Stream
from subquad_datasets.lm import Config
from subquad_datasets.text.generate import GeneratedTexts
from subquad_datasets.text.lines import COMPRESSED, fault, find_file, text_lines
from subquad_datasets.text.source import fingerprint, list_files
from subquad_datasets.tokenized import TextSource

TextPart = Literal["train", "validation", "test"]

PART_NAMES: dict[TextPart, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""What files of a split are called."""

_FORMS = ("{}.txt", "wiki.{}.tokens", "{}.tokens", "wiki.{}.raw", "{}.raw")
_ENDINGS = tuple(
    f"{ending}{packed}" for ending in (".txt", ".tokens", ".raw", ".text") for packed in COMPRESSED
)


class Lines(TextSource, Protocol):
    """The text of one split; `texts` are its lines."""

    def documents(self) -> Iterator[Iterator[str]]:
        """The lines of each document, with their ends; a document is to be read before the next
        one is asked for.
        """
        ...


@dataclass(frozen=True)
class TextFiles:
    """Files, each a document; or a part of them, cut by position.

    Attributes:
        files: in the order in which they are read.
        start: share of all bytes at which the part starts, and
        stop: at which it stops. A line belongs to the part in which it starts.
    """

    files: tuple[Path, ...]
    start: float = 0.0
    stop: float = 1.0

    def documents(self) -> Iterator[Iterator[str]]:
        if (self.start, self.stop) == (0.0, 1.0):
            yield from map(text_lines, self.files)
            return
        sizes = [_size(path) for path in self.files]
        if 0 in sizes:
            raise fault(self.files[sizes.index(0)], 1, "the file is empty")
        low = round(self.start * sum(sizes))
        high = round(self.stop * sum(sizes))
        for path, size in zip(self.files, sizes, strict=True):
            if low < size and high > 0:
                yield _between(path, low, high)
            low = low - size
            high = high - size

    def texts(self) -> Iterator[str]:
        return chain.from_iterable(self.documents())

    def fingerprint(self) -> str:
        return f"{fingerprint(self.files)} {self.start} {self.stop}"


@dataclass(frozen=True)
class GeneratedLines:
    """Texts of invented words, each a line."""

    seed: int
    part: Stream
    size: int

    @property
    def _texts(self) -> GeneratedTexts:
        return GeneratedTexts(self.seed, self.part, self.size)

    def documents(self) -> Iterator[Iterator[str]]:
        yield self.texts()

    def texts(self) -> Iterator[str]:
        return (f"{text.decode()}\n" for text, _ in self._texts.texts(utf8=True))

    def fingerprint(self) -> str:
        return f"{self._texts.fingerprint()} of {self.part}"


def find_lines(config: Config) -> dict[TextPart, Lines]:
    """The text of each split.

    Raises:
        DataError: no such file or folder, a split without a file, or no text file.
    """
    if config.path is None:
        return {
            part: GeneratedLines(config.seed, part, getattr(config, f"{part}_size"))
            for part in PART_NAMES
        }
    path = Path(config.path)
    if not path.exists():
        raise DataError(f"dataset.params.path: {path} is not there")
    if path.is_dir() and (parts := find_parts(path, *_FORMS)):
        return {part: TextFiles((file,)) for part, file in parts.items()}
    if path.is_dir():
        files = tuple(list_files(path, *_ENDINGS))
    else:
        files = (path,)
    if not files:
        raise DataError(
            f"dataset.params.path: {path} has no text files (*.txt, *.tokens, "
            "*.raw, *.text; .xz, .gz, .bz2)"
        )
    test = 1.0 - config.test_fraction
    train = test - config.validation_fraction
    bounds: dict[TextPart, tuple[float, float]] = {
        "train": (0.0, train),
        "validation": (train, test),
        "test": (test, 1.0),
    }
    return {part: TextFiles(files, *share) for part, share in bounds.items()}


def find_parts(folder: Path, *forms: str) -> dict[TextPart, Path]:
    """The file of each split, such as `train.txt` for the form `{}.txt`; empty where no split has
    one.

    Raises:
        DataError: a split has none, though another has.
    """
    files: dict[TextPart, Path] = {}
    for part, names in PART_NAMES.items():
        if path := find_file(folder, *(form.format(name) for name in names for form in forms)):
            files[part] = path
    for part, names in PART_NAMES.items():
        if files and part not in files:
            there = ", ".join(path.name for path in files.values())
            wanted = forms[0].format(names[0])
            raise DataError(
                f"dataset.params.path: {folder} has {there}, but no file for "
                f"{part}, such as {wanted}"
            )
    return files


def _between(path: Path, low: int, high: int) -> Iterator[str]:
    place = 0
    for line in text_lines(path):
        if place >= high:
            return
        if place >= low:
            yield line
        place += len(line.encode())


def _size(path: Path) -> int:
    """Bytes of a file's text."""
    if path.suffix not in COMPRESSED:
        return path.stat().st_size
    return sum(len(line.encode()) for line in text_lines(path))
