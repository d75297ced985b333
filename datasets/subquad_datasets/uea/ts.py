"""A whole .ts file, checked while it is read.

sktime's loader is the reference for the values (tests compare every file exactly), but it lets
unknown classes, infinities and missing values through and does not say where a fault is. Since a
strict check has to split every row anyway, the check is the reader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from subquad.data import hashed
from subquad.security.limits import VALUES, allow
from subquad_datasets.text.lines import fault, raw_lines
from subquad_datasets.uea.blocks import blocks, parse_block
from subquad_datasets.uea.header import Header, parse_header
from subquad_datasets.uea.lines import texts
from subquad_datasets.uea.rows import Missing, Place, Row, parse_row


@dataclass(frozen=True)
class Cases:
    """All series of a file, one after the other.

    Attributes:
        values: (sum of lengths, C) float64, finite.
        lengths: (N,) int64.
        labels: (N,) int64.
        header: classes and channels.
        filled: (N,) int64, values that were interpolated.
        ended: (N,) int64, steps without a value after the end of each.
    """

    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    header: Header
    filled: np.ndarray
    ended: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def digests(self) -> np.ndarray:
        """(N,) uint64, equal for equal series."""
        return hashed(
            series.tobytes() for series in np.split(self.values, np.cumsum(self.lengths)[:-1])
        )

    def take(self, chosen: np.ndarray) -> Cases:
        """The series with these sorted indices, (n,)."""
        steps = np.isin(np.repeat(np.arange(len(self)), self.lengths), chosen)
        return Cases(
            self.values[steps],
            self.lengths[chosen],
            self.labels[chosen],
            self.header,
            self.filled[chosen],
            self.ended[chosen],
        )


def read_ts(path: Path, *, missing: Missing = "refuse", labelled: bool = True) -> Cases:
    """Read a .ts file, plain or compressed.

    Args:
        path: the file.
        missing: what to do with missing values.
        labelled: there must be classes; else a file without @classLabel has rows without a class,
            `NO_LABEL`.

    Raises:
        DataError: anything wrong with it, as `file:line: ...`.
    """
    lines = raw_lines(path)
    header = parse_header(path, texts(path, lines), labelled=labelled)
    rows: list[Row] = []
    for number, line in islice(texts(path, lines), 1):
        rows.append(parse_row(Place(path, number), line, header, missing))
        header = _pin(header, rows[0])
    for block in blocks(lines):
        block_rows = parse_block(block, header)
        allow(path, "series", len(rows) + len(block), VALUES)
        rows += block_rows or (
            parse_row(Place(path, at), line, header, missing) for at, line in texts(path, block)
        )
    if not rows:
        raise fault(path, header.data_line, "no series after @data")
    return _stack(header, rows)


def _pin(header: Header, first: Row) -> Header:
    """What the header leaves open, the first row decides."""
    channels, steps = first.values.shape
    steps += first.ended
    return replace(header, channels=channels, length=steps if header.equal_length else None)


def _stack(header: Header, rows: list[Row]) -> Cases:
    return Cases(
        values=np.concatenate([row.values.T for row in rows]),
        lengths=np.array([row.values.shape[1] for row in rows], dtype=np.int64),
        labels=np.array([row.label for row in rows], dtype=np.int64),
        header=header,
        filled=np.array([row.filled for row in rows], dtype=np.int64),
        ended=np.array([row.ended for row in rows], dtype=np.int64),
    )
