"""Where pairs come from: tsv files of pairs, or documents with two parts from which pairs are
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from subquad.errors import DataError
from subquad_datasets.retrieval import Config
from subquad_datasets.text.lines import find_file
from subquad_datasets.text.source import fingerprint, list_files

Kind = Literal["aan", "tsv", "jsonl", "folders"]
SplitPart = Literal["train", "validation", "test"]

_NAMES: dict[SplitPart, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("eval", "validation", "val", "dev"),
    "test": ("test",),
}
_INSIDE = ("", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
"""Where the official archive keeps its tsv files, seen from the folders a user may point at."""


@dataclass(frozen=True)
class Source:
    """The documents or pairs of one split.

    Attributes:
        kind: "aan" and "tsv" hold pairs; "jsonl" and "folders" hold documents with two parts.
        path: the file; for "folders" the split's folder.
    """

    kind: Kind
    path: Path

    def files(self, config: Config) -> list[Path]:
        """What the contents depend on."""
        if self.kind != "folders":
            return [self.path]
        return [path for pair in part_files(self.path, config) for path in pair]

    def fingerprint(self, config: Config) -> str:
        """Names, sizes and times of the files: another one, other contents."""
        return fingerprint(self.files(config))


def find_pairs(config: Config, part: SplitPart) -> Source | None:
    """The source of a split, None where there is none; official names come first.

    Raises:
        DataError: no such folder.
    """
    root = Path(config.path or "")
    if not root.is_dir():
        raise DataError(f"dataset.params.path: {root} is not a folder")
    names = _NAMES[part]
    for folder in (root / inside for inside in _INSIDE):
        if file := find_file(folder, *(f"new_aan_pairs.{name}.tsv" for name in names)):
            return Source("aan", file)
    if file := find_file(root, *(f"{name}.tsv" for name in names)):
        return Source("tsv", file)
    if file := find_file(root, *(f"{name}.jsonl" for name in names)):
        return Source("jsonl", file)
    folders = (root / name for name in names)
    return next(
        (Source("folders", path) for path in folders if (path / config.first).is_dir()), None
    )


def need_pairs(config: Config, part: SplitPart) -> Source:
    """As `find_pairs`, with an error where there is none."""
    source = find_pairs(config, part)
    if source is None:
        name = _NAMES[part][0]
        raise DataError(
            f"dataset.params.path: {config.path} has none of "
            f"new_aan_pairs.{name}.tsv, {name}.tsv, {name}.jsonl "
            f"(.xz, .gz, .bz2) and {name}/{config.first}/*.txt"
        )
    return source


def part_files(split: Path, config: Config) -> list[tuple[Path, Path]]:
    """The two files of each document of a "folders" split, by name.

    Raises:
        DataError: a document has one of its parts only.
    """
    first = split / config.first
    second = split / config.second
    first_names = {path.name for path in list_files(first, ".txt")}
    second_names = {path.name for path in list_files(second, ".txt")}
    if alone := sorted(first_names ^ second_names):
        name = alone[0]
        if name in first_names:
            there = first
            missing = second
        else:
            there = second
            missing = first
        raise DataError(
            f"{there / name}: there is no {missing / name}; a document needs both parts"
        )
    return [(first / name, second / name) for name in sorted(first_names)]
