"""Small pictures in folders of classes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, height: int = 20, width: int = 24) -> np.ndarray:
    """(height, width, 3) uint8, smooth enough that JPEG keeps it nearly as it is."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(seed: int, kind: str = "PNG", height: int = 20, width: int = 24) -> bytes:
    """A file's bytes."""
    stream = io.BytesIO()
    Image.fromarray(pixels(seed, height, width)).save(stream, kind)
    return stream.getvalue()


def write_folder(folder: Path, classes: dict[str, int], seed: int = 0) -> None:
    """So many PNG files in a folder for each class, all different."""
    for place, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number:03}.png").write_bytes(
                encoded(seed * 100_000 + place * 1000 + number)
            )
