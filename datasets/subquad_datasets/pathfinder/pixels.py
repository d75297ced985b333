"""Images of equal size as sequences of pixels: written one after the other, read memory-mapped.

A column NAME is two files: `NAME.pixels.npy` (N, L) uint8, and `NAME.labels.npy` (N,) uint8.
Letters: N images, L = H * W pixels, row by row, B batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy

from subquad.data import ArrayBatch, Split, hashed
from subquad.errors import DataError
from subquad.security.limits import allow_disk
from subquad_datasets.prepared import prepared_content

PixelRule = Literal["shifted", "official"]

LEVELS = 256


def vocabulary(rule: PixelRule) -> int:
    """Token ids with this rule: 256, and one more for the padding that "shifted" leaves free."""
    return LEVELS + (rule == "shifted")


def write_pixels(
    folder: Path,
    name: str,
    count: int,
    length: int,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
) -> None:
    """Write a column block by block; none is kept in memory.

    Args:
        folder: existing folder.
        name: of the column.
        count: N.
        length: L.
        blocks: (n, L) uint8 pixels and (n,) uint8 labels, N in all.

    Raises:
        ValueError: blocks that hold another number of images, or images of another size.
    """
    allow_disk(f"{name}: {count:,} images of {length:,} pixels", count * length, folder)
    labels: list[np.ndarray] = [np.zeros(0, np.uint8)]
    with (folder / f"{name}.pixels.npy").open("wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, length)}
        npy.write_array_header_1_0(stream, header)
        for pixels, of_block in blocks:
            if pixels.shape != (len(of_block), length) or pixels.dtype != np.uint8:
                raise ValueError(
                    f"{name}: a block {pixels.shape} of {pixels.dtype} for {len(of_block)} labels"
                )
            stream.write(np.ascontiguousarray(pixels).data)
            labels.append(of_block.astype(np.uint8))
    written = np.concatenate(labels)
    if len(written) != count:
        raise ValueError(f"{name}: {len(written)} images, {count} were announced")
    np.save(folder / f"{name}.labels.npy", written)


class PixelSplit(Split):
    """A split of one column. Pickles as its place: a loader process maps the files itself.

    Args:
        folder: where the column is.
        name: of the column.
        rule: how a pixel becomes a token. "shifted": value + 1, all real. "official": the value
            itself, and black pixels (0) count as padding, as in the published Long Range Arena
            code.
        rows: first and last + 1 of the column's images that belong to the split; None: all.

    Raises:
        DataError: a file is missing or damaged.
    """

    def __init__(
        self, folder: Path, name: str, rule: PixelRule, rows: tuple[int, int] | None = None
    ):
        self._place = (folder, name, rule, rows)
        self.rule = rule
        if rows:
            part = slice(*rows)
        else:
            part = slice(None)
        self.pixels, self.labels = (
            _map(folder / f"{name}.{kind}.npy")[part] for kind in ("pixels", "labels")
        )
        if len(self.pixels) != len(self.labels):
            raise DataError(
                f"{folder / name}: {len(self.pixels)} images, {len(self.labels)} labels"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __reduce__(self) -> Any:
        return type(self), self._place

    @cached_property
    def discs(self) -> np.ndarray:
        """(n, 4) uint8: see `discs.find_discs`."""
        folder, name, _, rows = self._place
        return _map(folder / f"{name}.discs.npy")[slice(*rows) if rows else slice(None)]

    def digests(self) -> np.ndarray:
        return hashed(self.pixels)

    def content(self) -> str:
        folder, name, _, rows = self._place
        return prepared_content(folder, name, None if rows is None else np.array(rows))

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        values = self.pixels[indices]
        inputs = values.astype(np.int64)
        if self.rule == "shifted":
            inputs += 1
        return {
            "inputs": inputs,
            "keep": inputs != 0,
            "labels": self.labels[indices].astype(np.int64),
        }


def _map(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); prepare the data again") from error
