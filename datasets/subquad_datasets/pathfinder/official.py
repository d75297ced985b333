"""The release as it is: RELEASE/pathfinder32/curv_contour_length_14/{imgs/<n>/sample_<i>.png,
metadata/<n>.npy}.

A metadata file has a row of 11 columns for each image: folder, file name, number, label,
continuity, contour length, distractor length, paddle length, paddle thickness, margin, number of
contrasts. In the release these files are plain text in spite of their names; the original script
writes NumPy arrays of strings. Both are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import LINE, check_npy, read_whole
from subquad_datasets.pathfinder.drawing import FOLDERS, Difficulty, Resolution
from subquad_datasets.text.lines import listed

COLUMNS = 11
LABEL_COLUMN = 3

OFFICIAL_COUNT = 200_000
"""Images of each folder of the release."""

KNOWN_EMPTY: dict[tuple[Resolution, Difficulty], frozenset[str]] = {
    (32, "easy"): frozenset({"imgs/0/sample_172.png"})
}
"""Files without content in the release; every published loader skips them."""

_METADATA = re.compile(r"[0-9]+\.npy").fullmatch
_NPY = b"\x93NUMPY"


@dataclass(frozen=True)
class Listing:
    """The images of one folder of the release, in the order of its metadata files (by number) and
    their lines.

    Attributes:
        folder: `.../curv_...`.
        names: of the images, below `folder`.
        labels: (N,) uint8; 1 where both markers are on one snake.
        lines: where each image is listed, "file:line".
        skipped: known empty files that were left out.
    """

    folder: Path
    names: tuple[str, ...]
    labels: np.ndarray
    lines: tuple[str, ...]
    skipped: tuple[str, ...]


def find_folder(path: Path, resolution: Resolution, difficulty: Difficulty) -> Path:
    """The folder of one parameter set in, or below, the one the user named.

    Raises:
        DataError: it is not there.
    """
    leaf = FOLDERS[difficulty]
    below = Path(f"pathfinder{resolution}") / leaf
    places = [
        path / "lra_release" / "lra_release" / below,
        path / "lra_release" / below,
        path / below,
        path / leaf,
    ]
    if path.name == leaf:
        places.append(path)
    for place in places:
        if (place / "metadata").is_dir():
            return place
    raise DataError(
        f"{path}: no {below}/metadata here; path is the folder of the Long Range Arena release"
    )


def read_listing(folder: Path, resolution: Resolution, difficulty: Difficulty) -> Listing:
    """Read all metadata files of a folder.

    Raises:
        DataError: a malformed file, as `file:line: ...`, or none at all.
    """
    rows = [row for path in metadata_files(folder) for row in _read_metadata(path)]
    known_empty = KNOWN_EMPTY.get((resolution, difficulty), frozenset())
    line_of: dict[str, str] = {}
    for name, _, line in rows:
        if name in line_of:
            raise DataError(f"{line}: {name} is listed in {line_of[name]} already")
        line_of[name] = line
    kept = [row for row in rows if row[0] not in known_empty]
    if kept:
        names, labels, lines = zip(*kept, strict=True)
    else:
        names = ()
        labels = ()
        lines = ()
    skipped = tuple(sorted(known_empty.intersection(line_of)))
    return Listing(folder, names, np.array(labels, dtype=np.uint8), lines, skipped)


def metadata_files(folder: Path) -> list[Path]:
    """`metadata/<n>.npy`, by number.

    Raises:
        DataError: there is none.
    """
    files = [
        folder / "metadata" / entry.name
        for entry in listed(folder / "metadata")
        if _METADATA(entry.name)
    ]
    if not files:
        raise DataError(f"{folder / 'metadata'}: no metadata files <number>.npy")
    if wrong := [path for path in files if not path.is_file()]:
        raise DataError(
            f"{wrong[0]}: is no file, or a link that leads nowhere; a metadata file is needed"
        )
    return sorted(files, key=lambda path: int(path.stem))


def _read_metadata(path: Path) -> list[tuple[str, int, str]]:
    """(name, label, "file:line") of each image."""
    try:
        with path.open("rb") as stream:
            is_array = stream.read(len(_NPY)) == _NPY
        if is_array:
            rows = _array_rows(path)
        else:
            rows = _text_rows(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return [_image(row, f"{path}:{number}") for number, row in enumerate(rows, start=1)]


def _array_rows(path: Path) -> list[list[str]]:
    try:
        with path.open("rb") as stream:
            check_npy(stream, path.stat().st_size)
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: a damaged NumPy array ({error})") from error
    if array.ndim != 2 or array.dtype.kind not in "US":
        raise DataError(
            f"{path}: an array {array.shape} of {array.dtype}, not (images, {COLUMNS}) of strings"
        )
    return array.astype(str).tolist()


def _text_rows(path: Path) -> list[list[str]]:
    rows = []
    for number, line in enumerate(read_whole(path, LINE).splitlines(), start=1):
        try:
            rows.append(line.decode().split())
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
    return rows


def _image(row: list[str], line: str) -> tuple[str, int, str]:
    if len(row) != COLUMNS:
        raise DataError(f"{line}: {len(row)} columns, not {COLUMNS}; is the file complete?")
    label = row[LABEL_COLUMN]
    if label not in ("0", "1"):
        raise DataError(f"{line}: label {label!r} in column {LABEL_COLUMN}, not 0 or 1")
    name = PurePosixPath(row[0], row[1])
    if name.is_absolute() or ".." in name.parts or not row[1].endswith(".png"):
        raise DataError(f"{line}: {str(name)!r} is no PNG below the folder")
    return str(name), int(label), line
