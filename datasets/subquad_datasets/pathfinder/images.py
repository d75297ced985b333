"""PNG files to bytes. Pillow is imported here and nowhere else."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import read_whole
from subquad_datasets.pathfinder.official import Listing

_IN_BLOCK = 1024
_THREADS = 8
"""Files are small: their latency counts, and Pillow decodes without holding the interpreter."""


def read_images(
    listing: Listing, rows: np.ndarray, size: int, note: Callable[[bytes], object]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of images: (n, size * size) uint8 pixels and (n,) uint8 labels.

    Args:
        listing: what there is.
        rows: images of the listing, in the order wanted.
        size: height and width.
        note: gets a line for each image as `sha256sum` prints it, in the order of `rows`.

    Raises:
        DataError: an image is missing, unreadable, of another size or not gray; or Pillow is
            missing.
    """
    pillow = import_pillow()
    with ThreadPoolExecutor(_THREADS) as threads:
        for start in range(0, len(rows), _IN_BLOCK):
            block = rows[start : start + _IN_BLOCK]
            images = list(
                threads.map(lambda row: read_image(pillow, listing, row, size), block.tolist())
            )
            for row, (_, digest) in zip(block.tolist(), images, strict=True):
                note(f"{digest}  {listing.names[row]}\n".encode())
            yield np.stack([pixels for pixels, _ in images]), listing.labels[block]


def read_image(pillow: ModuleType, listing: Listing, row: int, size: int) -> tuple[np.ndarray, str]:
    """(size * size,) uint8, and sha256 of the file."""
    path: Path = listing.folder / listing.names[row]
    try:
        data = read_whole(path)
        with pillow.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.size != (size, size) or image.mode != "L":
                width, height = image.size
                raise DataError(
                    f"{path}: {width} x {height} pixels of mode {image.mode}, not "
                    f"{size} x {size} of mode L"
                )
            return np.asarray(image, dtype=np.uint8).ravel(), hashlib.sha256(data).hexdigest()
    except FileNotFoundError as error:
        raise DataError(f"{listing.lines[row]}: {path} is missing") from error
    except pillow.UnidentifiedImageError as error:  # its text is the address of a Python object
        raise DataError(f"{path}: cannot be read as a PNG ({_kind(path)})") from error
    except (
        OSError,
        SyntaxError,
        ValueError,
        pillow.DecompressionBombError,
    ) as error:  # Pillow has no exception of its own for broken data
        raise DataError(f"{path}: cannot be read as a PNG ({error})") from error


def _kind(path: Path) -> str:
    return "an empty file" if path.stat().st_size == 0 else "another format, or damaged"


def import_pillow() -> ModuleType:
    """Pillow's `Image` module.

    Raises:
        DataError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "lra-pathfinder: reading PNG images needs Pillow: pip install "
            "'subquad[vision]'; generated images do not"
        ) from error
    return Image
