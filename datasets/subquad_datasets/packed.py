"""Token sequences of unequal length on disk, one after the other, and splits that read them
memory-mapped.

A column NAME is three files: `NAME.tokens.npy` (T,) uint8, uint16 or uint32, `NAME.offsets.npy` (N
+ 1,) int64 and, where there are labels, `NAME.labels.npy` (N,). Letters: N sequences, T tokens of
all, B batch, L = max_len.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.lib.stride_tricks import sliding_window_view

from subquad.data import ArrayBatch, Split, hashed
from subquad.errors import DataError
from subquad.security.limits import check_npy
from subquad_datasets.prepared import prepared_content

Tokens = np.ndarray | bytes | bytearray

_LARGEST = {1: 255, 2: 65_535, 4: 4_294_967_295}


class PackedWriter:
    """Writes one column; tokens go to the disk as they come. Use as a context manager.

    Args:
        folder: existing folder.
        name: of the column.
        dtype: uint8, uint16 or uint32.
        labels: whether `extend` is given labels.
    """

    def __init__(self, folder: Path, name: str, dtype: type = np.uint8, *, labels: bool = True):
        self.folder = folder
        self.name = name
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.uint8, np.uint16, np.uint32):
            raise ValueError(f"tokens are kept as uint8, uint16 or uint32, not {self.dtype}")
        # Eight bytes a sequence: an array for each call would take more than a hundred.
        self._lengths = array("q")
        if labels:
            self._labels = array("q")
        else:
            self._labels = None
        self._stream: BinaryIO = (folder / f"{name}.tokens.npy").open("wb")
        self._start = self._header(0)

    def append(self, tokens: Tokens, label: int | None = None) -> None:
        """Add one sequence."""
        if label is None:
            labels = None
        else:
            labels = np.array([label])
        self.extend(tokens, np.array([len(tokens)]), labels)

    def extend(self, tokens: Tokens, lengths: np.ndarray, labels: np.ndarray | None = None) -> None:
        """Add sequences that lie one after the other in `tokens`.

        Args:
            tokens: (sum of lengths,) integers, or the bytes themselves.
            lengths: (n,) integers.
            labels: (n,) integers, in a column that has them.

        Raises:
            ValueError: lengths or labels that do not fit, or a token that `dtype` cannot hold.
        """
        if isinstance(tokens, bytes | bytearray):
            flat = np.frombuffer(tokens, np.uint8)
        else:
            flat = np.asarray(tokens)
        if int(lengths.sum()) != len(flat) or (labels is None) != (self._labels is None):
            raise ValueError(
                f"{self.name}: {len(flat)} tokens for lengths of "
                f"{int(lengths.sum())}, labels {labels}"
            )
        if (
            flat.dtype != self.dtype
            and len(flat)
            and not 0 <= flat.min() <= flat.max() <= _LARGEST[self.dtype.itemsize]
        ):
            raise ValueError(
                f"{self.name}: tokens {flat.min()}..{flat.max()} do not fit {self.dtype}"
            )
        self._stream.write(np.ascontiguousarray(flat, dtype=self.dtype).data)
        self._lengths.frombytes(np.array(lengths, dtype=np.int64).tobytes())
        if self._labels is not None and labels is not None:
            self._labels.frombytes(np.array(labels, dtype=np.int64).reshape(len(lengths)).tobytes())

    def close(self) -> None:
        """Write offsets and labels, and the number of tokens into the header."""
        offsets = np.cumsum(np.append(0, np.array(self._lengths, dtype=np.int64)))
        if self._header(int(offsets[-1])) != self._start:
            raise AssertionError("the header has grown")
        self._stream.close()
        np.save(self.folder / f"{self.name}.offsets.npy", offsets)
        if self._labels is not None:
            np.save(self.folder / f"{self.name}.labels.npy", np.array(self._labels, dtype=np.int64))

    def _header(self, count: int) -> int:
        """Write the header for `count` tokens; NumPy leaves room for the first axis to grow.
        Returns its size.
        """
        self._stream.seek(0)
        descr = npy.dtype_to_descr(self.dtype)
        npy.write_array_header_1_0(
            self._stream, {"descr": descr, "fortran_order": False, "shape": (count,)}
        )
        return self._stream.tell()

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._stream.close()


def write_packed(
    folder: Path, name: str, rows: Iterable[Tokens], labels: Iterable[int], dtype: type = np.uint8
) -> None:
    """Write one column from sequences and their labels, both taken one by one."""
    with PackedWriter(folder, name, dtype) as writer:
        for tokens, label in zip(rows, labels, strict=True):
            writer.append(tokens, label)


class PackedColumn:
    """One column, memory-mapped. Pickles as its place: a loader process maps the files itself.

    Args:
        folder: where the files are.
        name: of the column.

    Raises:
        DataError: a file is missing, damaged, or does not fit the others.
    """

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self.name = name
        self.tokens = _map(folder, f"{name}.tokens")
        self.offsets = _map(folder, f"{name}.offsets")
        if self.offsets.ndim != 1 or len(self.offsets) == 0 or self.offsets[-1] != len(self.tokens):
            raise DataError(
                f"{folder / name}.offsets.npy does not fit "
                f"{name}.tokens.npy; prepare the data again"
            )
        self._views: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __reduce__(self) -> Any:
        return type(self), (self.folder, self.name)

    def lengths(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """(n,) int64: tokens of each of the rows."""
        return self.offsets[1:][rows] - self.offsets[:-1][rows]

    def digests(self) -> np.ndarray:
        """(N,) uint64: a hash of each row."""
        return hashed(self.tokens[start:end] for start, end in pairwise(self.offsets.tolist()))

    def gather(
        self, rows: np.ndarray, max_len: int, shift: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows as one padded batch; tokens beyond `max_len` are dropped.

        Args:
            rows: (B,) int64.
            max_len: L.
            shift: added to each token, where the stored ones leave no room for 0 as padding.

        Returns:
            (B, L) int64, 0 after the last token, and (B, L) bool, True = real token.
        """
        starts = self.offsets[rows]
        lengths = np.minimum(self.offsets[rows + 1] - starts, max_len)
        tokens, mask = self._windows(max_len)
        last = len(tokens) - 1
        inputs = tokens[np.minimum(starts, last)]
        keep = mask[max_len - lengths]
        for row in np.flatnonzero(starts > last) if starts.max(initial=0) > last else ():
            inputs[row] = np.roll(inputs[row], last - starts[row])
        if shift:
            inputs = inputs.astype(np.int64)
            inputs += shift
        inputs *= keep.view(np.uint8)
        return inputs.astype(np.int64, copy=False), keep

    def _windows(self, max_len: int) -> tuple[np.ndarray, np.ndarray]:
        """Views with `max_len` tokens from each place on, (T - L + 1, L), and with a mask of each
        length, (L + 1, L).

        One index then copies whole rows, much faster than an index for each token or a slice for
        each row.
        """
        if max_len not in self._views:
            missing = max_len - len(self.tokens)
            if missing > 0:
                tokens = np.pad(self.tokens, (0, missing))
            else:
                tokens = self.tokens
            mask = np.repeat([True, False], max_len)
            self._views[max_len] = (
                sliding_window_view(tokens, max_len),
                sliding_window_view(mask, max_len),
            )
        return self._views[max_len]


class PackedSplit(Split):
    """A split of one column with labels.

    Args:
        folder: where the column is.
        name: of the column.
        max_len: L, what every batch is padded to and longer sequences are cut at.
        shift: added to each token.
        rows: (n,) int64, the rows that belong to this split; None: all.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        max_len: int,
        *,
        shift: int = 0,
        rows: np.ndarray | None = None,
    ):
        self.max_len = max_len
        self.shift = shift
        self.column = PackedColumn(folder, name)
        self._labels = _open_labels(folder, name, len(self.column))
        self._rows = rows

    def __len__(self) -> int:
        if self._rows is None:
            return len(self.column)
        return len(self._rows)

    def __reduce__(self) -> Any:
        return _reopen, (
            type(self),
            self.column.folder,
            self._name,
            self.max_len,
            self.shift,
            self._rows,
        )

    @property
    def _name(self) -> str:
        return self.column.name

    @property
    def labels(self) -> np.ndarray:
        """(n,) labels of the split, in its order."""
        return np.asarray(self._labels if self._rows is None else self._labels[self._rows])

    @property
    def starts(self) -> np.ndarray:
        """(n,) place of each sequence's first token in `column.tokens`."""
        if self._rows is None:
            return self.column.offsets[:-1]
        return self.column.offsets[self._rows]

    @property
    def uncut_lengths(self) -> np.ndarray:
        """(n,) tokens of each sequence of the split, before anything is cut."""
        return self.column.lengths(self._chosen)

    @property
    def _chosen(self) -> np.ndarray | slice:
        if self._rows is None:
            return slice(None)
        return self._rows

    def lengths(self) -> np.ndarray:
        return np.minimum(self.uncut_lengths, self.max_len)

    def digests(self) -> np.ndarray:
        """(n,) uint64, of whole sequences before anything is cut."""
        return self.column.digests()[self._chosen]

    def content(self) -> str:
        return prepared_content(self.column.folder, self._name, self._rows)

    def subset(self, indices: np.ndarray) -> PackedSplit:
        """The split of these of its samples, in this order."""
        if self._rows is None:
            rows = indices
        else:
            rows = self._rows[indices]
        return type(self)(self.column.folder, self._name, self.max_len, shift=self.shift, rows=rows)

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        if self._rows is None:
            rows = indices
        else:
            rows = self._rows[indices]
        inputs, keep = self.column.gather(rows, self.max_len, self.shift)
        return {"inputs": inputs, "keep": keep, "labels": self._labels[rows].astype(np.int64)}


def _reopen(
    kind: type[PackedSplit],
    folder: Path,
    name: str,
    max_len: int,
    shift: int,
    rows: np.ndarray | None,
) -> PackedSplit:
    return kind(folder, name, max_len, shift=shift, rows=rows)


def _open_labels(folder: Path, name: str, count: int) -> np.ndarray:
    labels = _map(folder, f"{name}.labels")
    if len(labels) != count:
        raise DataError(f"{folder / name}.labels.npy: {len(labels)} labels for {count} sequences")
    return labels


def _map(folder: Path, stem: str) -> np.ndarray:
    path = folder / f"{stem}.npy"
    try:
        # An empty file cannot be mapped, and the base class spares a Python call per slice.
        with path.open("rb") as stream:
            count = check_npy(stream, path.stat().st_size)
        return np.load(path, mmap_mode="r" if count else None, allow_pickle=False).view(np.ndarray)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); prepare the data again") from error
