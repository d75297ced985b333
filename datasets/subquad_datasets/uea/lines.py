"""Text lines of a .ts file, plain or compressed, with the checks that belong to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from subquad_datasets.text.lines import COMPRESSED, fault

SUFFIXES = tuple(f".ts{ending}" for ending in COMPRESSED)
"""File endings that are read, in the order in which they are looked for."""


def texts(path: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Numbered lines, stripped; empty ones are left out.

    Raises:
        DataError: a NUL byte, or bytes that are not UTF-8.
    """
    for number, raw in lines:
        if text := _decode(path, number, raw):
            yield number, text


def _decode(path: Path, number: int, raw: bytes) -> str:
    if b"\0" in raw:
        raise fault(
            path, number, f"NUL byte at column {raw.index(0) + 1}; the file is binary or damaged"
        )
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        bad = raw[error.start]
        raise fault(
            path, number, f"byte 0x{bad:02x} at column {error.start + 1} is not UTF-8"
        ) from error
