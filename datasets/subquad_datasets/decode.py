"""Bytes of a JPEG, PNG, GIF or WebP picture to pixels. The only place of the picture data sets
that decodes.

All decoders give Pillow's pixels, byte by byte, as all use libjpeg-turbo; the others are faster.
They get the JPEGs of one or three components. What else there is stays with Pillow, and so does
what another one refuses: simplejpeg takes a warning for an error. So the pictures that can be read
are the same with every decoder. Of a GIF or WebP with several pictures the first is taken.

Departures from what a viewer shows: the orientation in EXIF is ignored, as torchvision's
ImageFolder and timm do; transparency is dropped, the colours below it stay. Letters: H height, W
width.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from subquad.errors import DataError

Decoder = Literal["pillow", "torchvision", "simplejpeg"]

MAX_PIXELS = 89_478_485
"""H x W of the largest picture that Pillow takes without a warning: 256 MiB of RGB."""

MAX_SCANS = 100
"""Passes over its pixels that a JPEG may ask for; a progressive one has about ten."""

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP")
"""Pillow's names of the formats that are read; it has many more, for other work."""

_START = b"\xff\xd8"
_END = b"\xff\xd9"
"""Of a JPEG; its pixels never have these bytes."""

PNG = b"\x89PNG\r\n\x1a\n"
_DEPTH = 24
"""The byte of a PNG that says the bits of a channel. Only PNG has more than 8 here: Pillow would
clip gray values of 16 bits, and take the upper half of colours.
"""


class UnreadableImage(Exception):
    """A picture that cannot be decoded; the message is the reason."""


def _scans(data: bytes) -> int:
    """Passes over its pixels that a JPEG asks for; in an eighth of the time of `bytes.count`."""
    values = np.frombuffer(data, np.uint8)
    return int(np.count_nonzero((values[:-1] == 0xFF) & (values[1:] == 0xDA)))


def decode(data: bytes, decoder: Decoder = "pillow", *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """The picture as (H, W, 3) uint8, RGB; gray ones have three equal channels.

    Args:
        data: a whole JPEG, PNG, GIF or WebP file, recognised by content, whatever its name says.
        decoder: what reads most JPEGs.
        max_pixels: H x W of the largest picture that is decoded; at most `MAX_PIXELS`.

    Raises:
        UnreadableImage: another format, damaged, cut off, more than 8 bits a channel, or too large.
    """
    from PIL import Image, UnidentifiedImageError

    if data.startswith(_START) and data.rfind(_END) < 0:  # or half of it would be decoded first
        raise UnreadableImage("cut off: a JPEG without its end")
    if data.startswith(_START) and (scans := _scans(data)) > MAX_SCANS:
        raise UnreadableImage(f"{scans} passes over its pixels, at most {MAX_SCANS} are made")
    check_depth(data)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=_FORMATS) as image,
        ):
            if image.width * image.height > max_pixels:
                raise UnreadableImage(
                    f"{image.width} x {image.height} pixels, more than {max_pixels:,}"
                )
            if image.format == "JPEG" and image.mode in ("RGB", "L") and decoder != "pillow":
                with suppress(Exception):  # of many kinds; Pillow decides
                    return _FAST[decoder](data)
            return np.array(image.convert("RGB"))
    except UnreadableImage:
        raise
    except UnidentifiedImageError:  # its text is the address of a Python object
        raise UnreadableImage("no JPEG, PNG, GIF or WebP, or damaged at its start") from None
    except Exception as error:  # a damaged picture fails in any way there is
        raise UnreadableImage(f"cannot be decoded ({' '.join(str(error).split())[:200]})") from None


def check_depth(data: bytes) -> None:
    """Refuse a PNG of more than 8 bits a channel.

    Raises:
        UnreadableImage: it is one.
    """
    if data.startswith(PNG) and max(data[_DEPTH : _DEPTH + 1], default=0) > 8:
        raise UnreadableImage(f"more than 8 bits a channel ({data[_DEPTH]}); save it with 8")


def check_decoder(decoder: Decoder) -> None:
    """Refuse a decoder that is not installed.

    Raises:
        DataError: how to install it.
    """
    for module, extra in {
        "PIL": "vision",
        decoder: "jpeg" if decoder == "simplejpeg" else "vision",
    }.items():
        if module != "pillow" and find_spec(module) is None:
            raise DataError(
                f"pictures need {module}, which is not installed: pip install 'subquad[{extra}]'"
            )


def _torchvision(data: bytes) -> np.ndarray:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    pixels: Any = decode_jpeg(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB
    )
    return pixels.permute(1, 2, 0).numpy()


def _simplejpeg(data: bytes) -> np.ndarray:
    from simplejpeg import decode_jpeg

    return decode_jpeg(data, "RGB")


_FAST: dict[str, Callable[[bytes], np.ndarray]] = {
    "torchvision": _torchvision,
    "simplejpeg": _simplejpeg,
}
