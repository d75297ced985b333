"""Tiny copies of CIFAR-10's layouts: batches as Python 2 pickled them, and image files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np


def text(value: bytes) -> bytes:
    """A Python 2 string: SHORT_BINSTRING or BINSTRING."""
    if len(value) < 256:
        return b"U" + bytes([len(value)]) + value
    return b"T" + struct.pack("<i", len(value)) + value


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def array(
    values: np.ndarray, kind: bytes = b"u1", make: bytes = b"cnumpy.core.multiarray\n_reconstruct\n"
) -> bytes:
    """A NumPy array as Python 2 pickled it."""
    shape = b"(" + b"".join(map(number, values.shape)) + b"t"
    dtype = (
        b"cnumpy\ndtype\n("
        + text(kind)
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNN"
        + number(-1) * 2
        + b"K\x00tb"
    )
    empty = make + b"(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + text(values.tobytes()) + b"tb"


def mapping(**entries: bytes) -> bytes:
    """A protocol 2 pickle of a dict with string keys."""
    return (
        b"\x80\x02}("
        + b"".join(text(key.encode()) + value for key, value in entries.items())
        + b"u."
    )


def listing(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch file: (N, 3 side side) uint8 and its labels."""
    names = listing([text(b"x.png") for _ in labels])
    return mapping(
        batch_label=text(b"a batch"),
        labels=listing([number(label) for label in labels]),
        data=array(pixels),
        filenames=names,
    )


def images(seed: int, count: int, side: int) -> np.ndarray:
    """(N, 3, side, side) uint8, with some black pixels."""
    drawn = np.random.default_rng(seed).integers(
        0, 256, size=(count, 3, side, side), dtype=np.uint8
    )
    drawn[:, :, 0, 0] = 0
    return drawn


def write_archive(folder: Path, side: int, per_batch: int = 4) -> tuple[np.ndarray, list[int]]:
    """An archive with two classes; returns TRAIN's images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta").write_bytes(
        mapping(label_names=listing([text(b"frog"), text(b"cat")]))
    )
    pixels, labels = images(0, 5 * per_batch, side), [index % 2 for index in range(5 * per_batch)]
    for index in range(5):
        part = slice(index * per_batch, (index + 1) * per_batch)
        rows = pixels[part].reshape(per_batch, -1)
        (folder / f"data_batch_{index + 1}").write_bytes(batch(rows, labels[part]))
    (folder / "test_batch").write_bytes(batch(images(1, 2, side).reshape(2, -1), [1, 0]))
    return pixels, labels
