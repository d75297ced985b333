"""Many ordinary rows of a .ts file at once, by pyarrow's reader of numbers, which gives exactly
what Python's does.

A block in which anything is odd is left to `rows`, which says what and where. C channels, L steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate, pairwise

import numpy as np

from subquad.data import NO_LABEL
from subquad.errors import DataError
from subquad_datasets.uea.header import Header
from subquad_datasets.uea.rows import Row

Line = tuple[int, bytes]
"""Number and content."""

_BLOCK = 8 << 20
_SHORT = 256 << 10
"""Bytes that are not worth the import of pyarrow."""

_NUMBER = b"0123456789.+-eE"
_TO_LINES = bytes.maketrans(b",:", b"\n\n")


def blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines that together have some megabytes. Where the lines end with an error, those before
    it come first.
    """
    block = list[Line]()
    size = 0
    try:
        for line in lines:
            block.append(line)
            size += len(line[1])
            if size >= _BLOCK:
                yield block
                block = []
                size = 0
    except DataError:
        yield block
        raise
    yield block


def parse_block(block: Sequence[Line], header: Header) -> list[Row] | None:
    """The rows of a block, None where it needs a closer look.

    Args:
        block: lines after @data.
        header: with its channels.
    """
    lines = [stripped for _, raw in block if (stripped := raw.strip())]
    if sum(map(len, lines)) < _SHORT or find_spec("pyarrow") is None:
        return None
    labels = _labels(lines, header)
    bodies = lines
    if header.class_names:
        bodies = [line[: line.rfind(b":")] for line in lines]
    lengths = [_length(body, header) for body in bodies]
    if labels is None or None in lengths:
        return None
    channels = header.channels or 0
    ends = [0, *accumulate(channels * (length or 0) for length in lengths)]
    values = _numbers(b"\n".join(bodies).translate(_TO_LINES), ends[-1])
    if values is None:
        return None
    rows = [values[start:end].reshape(channels, -1) for start, end in pairwise(ends)]
    return [Row(row, label, 0, 0) for row, label in zip(rows, labels, strict=True)]


def _labels(lines: Iterable[bytes], header: Header) -> list[int] | None:
    """The label of each row; None where one is unknown."""
    if not header.class_names:
        return [NO_LABEL for _ in lines]
    known = {name.encode(): number for name, number in header.labels.items()}
    labels = [known.get(line[line.rfind(b":") + 1 :].strip().lower(), NO_LABEL) for line in lines]
    return None if NO_LABEL in labels else labels


def _length(body: bytes, header: Header) -> int | None:
    """Steps of a series of numbers with as many in each channel; None where it is anything else."""
    separators = body.translate(None, _NUMBER)
    channels = header.channels or 0
    length = (len(separators) + 1) // channels
    if header.length not in (None, length) or separators != b":".join(
        [b"," * (length - 1)] * channels
    ):
        return None
    return length


def _numbers(column: bytes, count: int) -> np.ndarray | None:
    """(count,) float64, one from each line; None where not all are finite numbers."""
    import pyarrow
    from pyarrow import csv

    try:
        table = csv.read_csv(
            pyarrow.BufferReader(column),
            csv.ReadOptions(use_threads=False, block_size=len(column) + 1, column_names=["value"]),
            csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types={"value": pyarrow.float64()}, null_values=[]),
        )
    except pyarrow.ArrowInvalid:
        return None
    values = table["value"].to_numpy()
    return values if len(values) == count and np.isfinite(values).all() else None
