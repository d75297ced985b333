"""Which texts there are: `<split>/<class>/*.txt`, or `<split>_<class>.jsonl`. TEST is listed,
not read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from subquad.errors import DataError
from subquad.security.limits import LINE, read_whole
from subquad_datasets.prepared import fingerprint, sha256_of
from subquad_datasets.text.lines import check_start, check_utf8, is_file, json_rows, listed

UNLABELLED = "unsup"
"""aclImdb's folder of reviews without a rating; no class."""

_PACKED = re.compile(r"(?P<split>train|test)_(?P<label>.+?)\.jsonl(\.xz|\.gz|\.bz2)?")


@dataclass(frozen=True)
class Source:
    """The texts of one split.

    Attributes:
        classes: class names, sorted; a text's label is the position of its class.
        files: for each class its files: one text each (.txt), or one text a row (.jsonl).
    """

    classes: tuple[str, ...]
    files: tuple[tuple[Path, ...], ...]

    def texts(self, *, utf8: bool) -> Iterator[tuple[bytes, int]]:
        """Every text with its label, class by class, files by name."""
        for label, paths in enumerate(self.files):
            for path in paths:
                for text in _read(path, utf8):
                    yield text, label

    def fingerprint(self) -> str:
        """Names, sizes and times of the files: another one, other contents."""
        return fingerprint(path for paths in self.files for path in paths)


def find_texts(path: Path, split: str) -> Source | None:
    """The texts of "train" or "test"; None where the folder has none.

    Raises:
        DataError: no such folder, both layouts at once, or an empty class.
    """
    if not path.is_dir():
        raise DataError(f"dataset.params.path: {path} is not a folder")
    if (path / "aclImdb").is_dir():
        root = path / "aclImdb"
    else:
        root = path
    folders = _folders(root / split)
    packed = _packed(root, split)
    if folders and packed:
        raise DataError(
            f"{root}: {split} is there twice, as folders of texts and as {packed[0][1].name}"
        )
    classes = [(name, tuple(list_files(root / split / name, ".txt"))) for name in folders]
    classes = classes or [(name, (file,)) for name, file in packed]
    empty = [name for name, files in classes if not files]
    if empty:
        raise DataError(f"{root / split / empty[0]}: no *.txt files")
    if classes:
        return Source(tuple(name for name, _ in classes), tuple(files for _, files in classes))
    return None


def need_texts(path: Path, split: str) -> Source:
    """As `find_texts`, with an error where there are none."""
    source = find_texts(path, split)
    if source is None:
        raise DataError(
            f"dataset.params.path: {path} has neither {split}/<class>/*.txt nor "
            f"{split}_<class>.jsonl (.xz, .gz, .bz2)"
        )
    return source


def sums(paths: Sequence[Path]) -> dict[str, str]:
    """sha256 of what was read: of a file, by its name; of several one for all, by their common
    folder.

    That one is the sum of what `sha256sum` prints for the files, named below the folder, in the
    order in which they are read: `<sha256>  <name>` and a newline for each.
    """
    if len(paths) == 1:
        return {paths[0].name: sha256_of(paths[0])}
    folder = Path(os.path.commonpath(paths))
    digest = hashlib.sha256()
    for path in paths:
        line = f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return {f"{folder.name}: {len(paths)} files": digest.hexdigest()}


def list_files(folder: Path, *endings: str) -> list[Path]:
    """Files of a folder with one of the endings, in any case, by name.

    Raises:
        DataError: an entry has such an ending, and is a link that leads nowhere.
    """
    files = [entry for entry in listed(folder) if entry.name.lower().endswith(endings)]
    known = {entry.name for entry in files if entry.is_file(follow_symlinks=False)}
    names = [entry.name for entry in files]
    return [folder / name for name in names if name in known or is_file(folder / name)]


def list_folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted.

    Raises:
        DataError: an entry is a link that leads nowhere: nobody knows what it was.
    """
    folders = list[str]()
    for entry in listed(folder):
        if os.path.isdir(entry):  # entry.is_dir() raises for a link to itself
            folders.append(entry.name)
        elif entry.is_symlink() and not os.path.exists(entry):
            raise DataError(f"{entry.path}: is a link that leads nowhere; mend it, or take it away")
    return folders


def _folders(split: Path) -> list[str]:
    return [name for name in list_folders(split) if name != UNLABELLED]


def _packed(root: Path, split: str) -> list[tuple[str, Path]]:
    matches = ((_PACKED.fullmatch(entry.name), root / entry.name) for entry in listed(root))
    named = [
        (match["label"], child) for match, child in matches if match and match["split"] == split
    ]
    classes = sorted((label, child) for label, child in named if is_file(child))
    names = [name for name, _ in classes if name != UNLABELLED]
    if len(set(names)) < len(names):
        raise DataError(f"{root}: class {names[0]} of {split} is there twice, plain and compressed")
    return [(name, child) for name, child in classes if name != UNLABELLED]


def _read(path: Path, utf8: bool) -> Iterator[bytes]:
    if path.suffix.lower() != ".txt":
        for _, (text,) in json_rows(path, "text"):
            yield text
        return
    yield read_text(path, utf8)


def read_text(path: Path, utf8: bool) -> bytes:
    """One text, a file of its own.

    Raises:
        DataError: it cannot be read, is empty, or is not UTF-8 where that is wanted.
    """
    try:
        text = read_whole(path, LINE)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if utf8:
        check_start(path, text)
        check_utf8(path, text)
    if not text:
        raise DataError(f"{path}:1: the text is empty")
    return text
