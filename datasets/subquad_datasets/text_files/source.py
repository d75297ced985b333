"""Texts with the names of their classes: from folders of classes, CSV and JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import COMPRESSED, fault, find_file, json_object, raw_lines, strict_rows
from subquad_datasets.text.source import find_texts, fingerprint, read_text

PARTS = ("train", "validation", "test")
FORMS = (".csv", ".jsonl")


class Row(NamedTuple):
    """One text, where it stands, and the name of its class, "" where it has none."""

    text: str
    label: str
    path: Path
    line: int


@dataclass(frozen=True)
class Texts:
    """The texts of one split, or of a user's file.

    Attributes:
        files: with the name of the class of a .txt file, "" for other files.
        fields: names of the text's and of the class's column.
        labelled: whether each text needs a class.
    """

    files: tuple[tuple[Path, str], ...]
    fields: tuple[str, str]
    labelled: bool = True

    def rows(self) -> Iterator[Row]:
        """Every text.

        Raises:
            DataError: a file cannot be read, or a text or a class is missing.
        """
        for path, label in self.files:
            if not path.name.removesuffix(_ending(path)).endswith(FORMS):
                yield Row(read_text(path, utf8=True).decode(), label, path, 1)
            else:
                yield from self._checked(path)

    def texts(self) -> Iterator[str]:
        return (row.text for row in self.rows())

    def told(self) -> str:
        """What the files are, and how they were read."""
        path = self.files[0][0]
        if len(self.files) > 1 or path.suffix.lower() == ".txt":
            return f"{len(self.files):,} files, UTF-8"
        return f"{path.name}, UTF-8; columns {' and '.join(self.fields)}, others are not read"

    def fingerprint(self) -> str:
        return f"{fingerprint(path for path, _ in self.files)} {self.fields} {self.labelled}"

    def _checked(self, path: Path) -> Iterator[Row]:
        found = False
        for line, row in (_csv if ".csv" in path.suffixes else _json)(path):
            found = True
            text = row.get(self.fields[0])
            if not isinstance(text, str) or not text:
                raise fault(path, line, f"no text under {self.fields[0]!r}; {_seen(self.fields[0], row)}")
            label = row.get(self.fields[1])
            if isinstance(label, str):
                label = label.strip()
            if self.labelled and (isinstance(label, bool) or not isinstance(label, str | int) or label == ""):
                raise fault(path, line, f"no class under {self.fields[1]!r}; {_seen(self.fields[1], row)}")
            yield Row(text, str(label) if self.labelled else "", path, line)
        if not found:
            raise fault(path, 1, "no rows")


def _ending(path: Path) -> str:
    return path.suffix if path.suffix in COMPRESSED else ""


def _seen(field: str, row: dict[str, Any]) -> str:
    return f"the row has {', '.join(map(str, row))}{did_you_mean(field, map(str, row))}"


def _json(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in raw_lines(path):
        yield number, json_object(path, number, raw)


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with the lines where they start, as a text may have several; empty lines between rows are no rows."""
    rows = strict_rows(path)
    _, names = next(rows)
    counts = Counter(names)
    if wrong := [name for name in names if not name.strip() or counts[name] > 1]:
        raise fault(path, 1, f"column name {wrong[0]!r} is empty or there twice")
    for line, cells in rows:
        if cells and len(cells) != len(names):
            raise fault(path, line, f"{len(cells)} values, the header has {len(names)} columns")
        if cells:
            yield line, dict(zip(names, cells, strict=True))


def find_labelled(path: Path, fields: tuple[str, str]) -> dict[str, Texts]:
    """The texts of "train", of "test" and, where there are some, of "validation".

    Raises:
        DataError: no such folder, or a split is missing or there twice.
    """
    if not path.is_dir():
        raise DataError(f"dataset.params.path: {path} is not a folder")
    found = {part: texts for part in PARTS if (texts := _part(path, part, fields))}
    for part in ("train", "test"):
        if part not in found:
            raise DataError(f"dataset.params.path: {path} has no {part}/<class>/*.txt, {part}.csv or {part}.jsonl")
    return found


def _part(path: Path, part: str, fields: tuple[str, str]) -> Texts | None:
    files = [file for form in FORMS if (file := find_file(path, f"{part}{form}"))]
    folders = find_texts(path, part) if (path / part).is_dir() else None
    if len(files) + bool(folders) > 1:
        second = "a folder" if folders else files[1].name
        raise DataError(f"{path}: {part} is there twice, as {files[0].name} and {second}")
    if folders:
        places = zip(folders.classes, folders.files, strict=True)
        return Texts(tuple((file, label) for label, own in places for file in own), fields)
    return Texts(((files[0], ""),), fields) if files else None
