"""Rows of a tsv file of pairs: no header, no quoting, nothing escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from subquad_datasets.text.lines import check_utf8, fault, plain_number, raw_lines

_COLUMNS = {3: "label, text, text", 5: "label, id, id, text, text"}
_LABELS = {0.0: 0, 1.0: 1}


def read_pairs(
    path: Path, *, utf8: bool, columns: int | None = None
) -> Iterator[tuple[int, bytes, bytes]]:
    """The label (0 or 1) and the two texts of each row.

    Args:
        utf8: refuse rows that are not UTF-8.
        columns: 3 or 5; None: as many as the first row has.

    Raises:
        DataError: another number of columns, another label, an empty text, bad UTF-8, a last line
            without an end, no rows; with file and line.
    """
    number = 0
    for number, raw in raw_lines(path, ended=True):
        cells = raw.split(b"\t")
        if columns is None and len(cells) in _COLUMNS:
            columns = len(cells)
        if len(cells) != columns:
            wanted = " or ".join(
                f"{n} ({_COLUMNS[n]})" for n in ([columns] if columns else _COLUMNS)
            )
            raise fault(
                path, number, f"{len(cells)} columns, must be {wanted}; is the file cut off?"
            )
        if utf8:
            check_utf8(path, raw, number)
        first, second = cells[-2:]
        if not first or not second:
            raise fault(
                path, number, f"column {len(cells) - (not first)} is empty, a text is needed"
            )
        yield _label(path, number, cells[0]), first, second
    if not number:
        raise fault(path, 1, "the file is empty, pairs are needed")


def _label(path: Path, number: int, cell: bytes) -> int:
    try:
        return _LABELS[float(plain_number(cell.decode()))]
    except (ValueError, KeyError):
        shown = cell[:20].decode("utf-8", "backslashreplace")
        raise fault(path, number, f"label {shown!r} must be 0 or 1, also as 0.0 or 1.0") from None
