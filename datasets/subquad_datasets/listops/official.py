"""The official files: `basic_{train,val,test}.tsv`, a header `Source<TAB>Target`, then an
expression and its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from subquad.errors import DataError
from subquad_datasets.listops.reduce import value
from subquad_datasets.listops.tokens import END_ID, FIRST_OPERATOR, encode, stranger
from subquad_datasets.text.lines import fault, whole_lines

FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
OFFICIAL_SIZES = {"train": 96_000, "validation": 2_000, "test": 2_000}

_PLACES = ("", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
_OPERATORS = bytes(range(FIRST_OPERATOR, END_ID))


def find_files(folder: Path) -> dict[str, Path]:
    """The three files by split, in the folder itself or where the release has them.

    Raises:
        DataError: a file is missing.
    """
    places = [folder / place for place in _PLACES]
    release = next((place for place in places if (place / FILES["train"]).is_file()), None)
    if release is None:
        raise DataError(
            f"{folder}: no {FILES['train']} here or in {', '.join(filter(None, _PLACES))} below"
        )
    for name in FILES.values():
        if not (release / name).is_file():
            raise DataError(
                f"{release / name}: missing; the official release has {', '.join(FILES.values())}"
            )
    return {split: release / name for split, name in FILES.items()}


def read_rows(path: Path) -> Iterator[tuple[bytes, int]]:
    """Token ids and value of each row.

    Raises:
        DataError: `file:line:` and what is wrong there.
    """
    lines = whole_lines(path)
    number, header = next(lines, (1, b""))
    _check_header(path, header)
    for number, line in lines:
        yield _parse(path, number, line)
    if number == 1:
        raise fault(path, 1, "no rows after the header")


def _check_header(path: Path, line: bytes) -> None:
    if line.rstrip(b"\r\n") != b"Source\tTarget":
        raise fault(path, 1, f"the header is {_shown(line)}, expected 'Source<TAB>Target'")


def _parse(path: Path, number: int, line: bytes) -> tuple[bytes, int]:
    if not line.isascii():
        _check_utf8(path, number, line)
    if not line.endswith(b"\n"):
        raise fault(path, number, "the line has no end: the file is cut off")
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != 2:
        raise fault(
            path,
            number,
            f"{len(columns)} columns, expected 2: Source and Target, separated by a tab",
        )
    source, target = columns
    if len(target) != 1 or not target.isdigit():
        raise fault(path, number, f"the label is {_shown(target)}, expected a digit 0..9")
    if unknown := stranger(source):
        raise fault(
            path, number, f"{unknown}, expected a digit, [MIN, [MAX, [MED, [SM, ] or a parenthesis"
        )
    ids = encode(source)
    opened = len(ids) - len(ids.translate(None, _OPERATORS))
    closed = ids.count(END_ID)
    if not ids or opened != closed:
        raise fault(
            path, number, f"{opened} lists are opened and {closed} closed in {len(ids)} tokens"
        )
    try:
        answer = value(ids)
    except ValueError as error:
        raise fault(path, number, str(error)) from None
    if answer != int(target):
        raise fault(
            path, number, f"the label is {int(target)}, but the expression is worth {answer}"
        )
    return ids, answer


def _check_utf8(path: Path, number: int, line: bytes) -> None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = line[error.start]
        raise fault(
            path, number, f"byte 0x{bad:02x} at column {error.start + 1} is not UTF-8"
        ) from error


def _shown(raw: bytes) -> str:
    return repr(raw[:40].decode("utf-8", "replace"))
