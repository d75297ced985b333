"""Texts with the names of their classes: from folders of classes, CSV and JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from subquad.errors import DataError
from subquad_datasets.text.lines import (
    COMPRESSED,
    fault,
    find_file,
    json_object,
    json_text,
    told_field,
)
from subquad_datasets.text.own import (
    form_of,
    other_length,
    own_lines,
    own_text,
    strict_rows,
    told_of_csv,
)
from subquad_datasets.text.source import find_texts, fingerprint

PARTS = ("train", "validation", "test")
FORMS = (".csv", ".tsv", ".jsonl")


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
                yield Row(own_text(path), label, path, 1)
            else:
                yield from self._checked(path)

    def texts(self) -> Iterator[str]:
        return (row.text for row in self.rows())

    def described(self) -> str:
        """What the files are, and how they were read."""
        path = self.files[0][0]
        if len(self.files) > 1 or path.suffix.lower() == ".txt":
            return f"{len(self.files):,} files, UTF-8 or as their byte order marks say"
        form = form_of(path)
        told = form.encoding if ".jsonl" in path.suffixes else told_of_csv(path, form)
        return f"{path.name}, {told}; columns {' and '.join(self.fields)}, others are not read"

    def fingerprint(self) -> str:
        return f"{fingerprint(path for path, _ in self.files)} {self.fields} {self.labelled}"

    def _checked(self, path: Path) -> Iterator[Row]:
        has_rows = False
        for line, row in (_json if ".jsonl" in path.suffixes else _csv)(path):
            has_rows = True
            text = json_text(path, line, row, self.fields[0])
            label = row.get(self.fields[1])
            if isinstance(label, str):
                label = label.strip()
            if self.labelled and (type(label) not in (str, int) or label == ""):
                told = told_field(row, self.fields[1])
                needed = f"no class under {self.fields[1]!r}, a text or a whole number; {told}"
                raise fault(path, line, needed)
            yield Row(text, str(label) if self.labelled else "", path, line)
        if not has_rows:
            raise fault(path, 1, "no rows")


def _ending(path: Path) -> str:
    return path.suffix if path.suffix in COMPRESSED else ""


def _json(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in own_lines(path):
        yield number, json_object(path, number, raw)


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with the lines where they start, as a text may have several; empty lines between rows
    are no rows.
    """
    rows = strict_rows(path)
    _, names = next(rows)
    counts = Counter(names)
    if wrong := [name for name in names if not name.strip() or counts[name] > 1]:
        raise fault(path, 1, f"column name {wrong[0]!r} is empty or there twice")
    for line, cells in rows:
        if cells and len(cells) != len(names):
            raise other_length(path, line, len(cells), names)
        if cells:
            yield line, dict(zip(names, cells, strict=True))


def find_labelled(path: Path, fields: tuple[str, str]) -> dict[str, Texts]:
    """The texts of "train", of "test" and, where there are some, of "validation".

    Raises:
        DataError: no such folder, or a split is missing or there twice.
    """
    if not path.is_dir():
        raise DataError(f"dataset.params.path: {path} is not a folder")
    sources = {part: texts for part in PARTS if (texts := _part(path, part, fields))}
    for part in ("train", "test"):
        if part not in sources:
            raise DataError(
                f"dataset.params.path: {path} has no {part}/<class>/*.txt, "
                f"{part}.csv or {part}.jsonl"
            )
    return sources


def _part(path: Path, part: str, fields: tuple[str, str]) -> Texts | None:
    files = [file for form in FORMS if (file := find_file(path, f"{part}{form}"))]
    if (path / part).is_dir():
        folders = find_texts(path, part)
    else:
        folders = None
    if len(files) + bool(folders) > 1:
        if folders:
            second = "a folder"
        else:
            second = files[1].name
        raise DataError(f"{path}: {part} is there twice, as {files[0].name} and {second}")
    if folders:
        places = zip(folders.classes, folders.files, strict=True)
        return Texts(tuple((file, label) for label, own in places for file in own), fields)
    if files:
        return Texts(((files[0], ""),), fields)
    return None
