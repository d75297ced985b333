"""Pictures from bytes: all decoders agree, and what cannot be read has one exception with its
reason.
"""

import io
import struct
import zlib
from importlib.util import find_spec
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from subquad.errors import DataError
from subquad_datasets import decode as module
from subquad_datasets.decode import Decoder, UnreadableImage, check_decoder, decode

DECODERS = [arg for arg in get_args(Decoder) if arg == "pillow" or find_spec(arg)]
COLOURS = Image.fromarray(np.random.default_rng(0).integers(0, 256, (41, 53, 3), np.uint8))


def encoded(image: Image.Image = COLOURS, kind: str = "JPEG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


GIF = encoded(kind="GIF")
WEBP = encoded(kind="WEBP", save_all=True, append_images=[COLOURS.rotate(180)])


def png_header(width: int, height: int) -> bytes:
    """A small PNG that says it were so large."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + encoded(kind="PNG")[33:]
    )


def png_deep(channels: int) -> bytes:
    """A PNG of 16 bits a channel, gray or in colours, with or without transparency."""
    rows = np.random.default_rng(0).integers(0, 256, (6, 1 + 7 * 2 * channels), np.uint8)
    rows[:, 0] = 0  # no filter
    header = struct.pack(">IIBBBBB", 7, 6, 16, (0, 0, 4, 2, 6)[channels], 0, 0, 0)
    pieces = {b"IHDR": header, b"IDAT": zlib.compress(rows.tobytes()), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in pieces.items()
    )


def gif_header(width: int, height: int) -> bytes:
    """A small GIF that says its screen were so large."""
    return GIF[:6] + struct.pack("<HH", width, height) + GIF[10:]


def gif_frame(width: int, height: int) -> bytes:
    """A small GIF that says its first picture were so large."""
    place = GIF.index(b"," + struct.pack("<HHHH", 0, 0, *COLOURS.size)) + 5
    return GIF[:place] + struct.pack("<HH", width, height) + GIF[place + 4 :]


def webp_header(width: int, height: int) -> bytes:
    """A small WebP that says its canvas were so large."""
    place = WEBP.index(b"VP8X") + 12
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return WEBP[:place] + size + WEBP[place + 6 :]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        encoded(quality=90),
        encoded(subsampling=0),
        encoded(progressive=True),
        encoded(COLOURS.convert("L")),
        encoded(COLOURS.convert("CMYK")),
        encoded(kind="PNG"),
        encoded(COLOURS.convert("P"), "PNG"),
        encoded(COLOURS.convert("RGBA"), "PNG"),
        encoded(COLOURS.convert("1"), "PNG"),
        encoded(COLOURS.convert("P"), "PNG", transparency=3),
        encoded(kind="GIF"),
        encoded(COLOURS.convert("L"), "GIF"),
        encoded(COLOURS.convert("P"), "GIF", transparency=3),
        encoded(kind="WEBP"),
        encoded(COLOURS.convert("RGBA"), "WEBP", lossless=True),
    ],
)
def test_every_decoder_gives_pillows_pixels(decoder, data):
    pixels = decode(data, decoder)
    assert pixels.shape == (41, 53, 3)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("decoder", DECODERS)
def test_what_pillow_reads_every_decoder_reads(decoder):
    whole = encoded(quality=70)
    middle = len(whole) // 2
    for data in (
        whole[:-2] + b"\0\x01" + whole[-2:],
        whole[:-40] + whole[-2:],
        whole[:middle] + b"\0" * 9 + whole[middle:],
    ):
        assert np.array_equal(decode(data, decoder), decode(data)), decoder


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_of_several_pictures_is_taken(kind):
    first, second = COLOURS, COLOURS.rotate(180)
    options = {"lossless": True} if kind == "WEBP" else {}
    several = encoded(first, kind, save_all=True, append_images=[second, first], **options)
    with Image.open(io.BytesIO(several)) as image:
        assert image.n_frames == 3
    assert np.array_equal(decode(several), decode(encoded(first, kind, **options)))


def test_orientation_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert np.array_equal(decode(encoded(exif=exif)), decode(encoded()))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no JPEG, PNG, GIF or WebP"),
        (b"\xff\xd8" + bytes(500) + b"\xff\xd9", "no JPEG, PNG, GIF or WebP"),
        *((encoded(kind=kind), "no JPEG, PNG, GIF or WebP") for kind in ("BMP", "TIFF", "PPM")),
        (encoded(kind="GIF")[:-200], "cannot be decoded"),
        (encoded(kind="WEBP")[:-200], "cannot be decoded"),
        (gif_header(10_000, 10_000), "10000 x 10000 pixels, more than 89,478,485"),
        (gif_header(60_000, 60_000), r"cannot be decoded \(Image size .* exceeds limit"),
        (gif_frame(10_000, 10_000), "10000 x 10000 pixels, more than 89,478,485"),
        (webp_header(16_000, 16_000), r"cannot be decoded \(Image size .* exceeds limit"),
        (webp_header(10_000, 10_000), "10000 x 10000 pixels, more than 89|cannot be decoded"),
        (encoded()[:-200], "cut off: a JPEG without its end"),
        (encoded(kind="PNG")[:-200], "cannot be decoded"),
        (
            encoded(Image.fromarray(np.full((5, 5), 60_000, np.uint16)), "PNG"),
            r"more than 8 bits a channel .*; save it with 8",
        ),
        *(
            (png_deep(channels), r"bits a channel \(16\); save it with 8")
            for channels in (1, 2, 3, 4)
        ),
        (png_header(30_000, 30_000), r"cannot be decoded \(Image size .* exceeds limit"),
        (png_header(10_000, 10_000), "10000 x 10000 pixels, more than 89,478,485"),
        (png_header(0, 0), "no JPEG, PNG|cannot be decoded"),
    ],
)
def test_what_cannot_be_read_has_a_reason(decoder, data, reason):
    with pytest.raises(UnreadableImage, match=reason):
        decode(data, decoder)


def test_the_largest_picture_can_be_set():
    assert decode(encoded(), max_pixels=41 * 53).shape == (41, 53, 3)
    with pytest.raises(UnreadableImage, match=r"^53 x 41 pixels, more than 2,172$"):
        decode(encoded(), max_pixels=41 * 53 - 1)


def test_a_decoder_that_is_missing_is_named(monkeypatch):
    check_decoder("pillow")
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "simplejpeg" else True)
    with pytest.raises(
        DataError, match=r"^pictures need simplejpeg.*pip install 'subquad\[jpeg\]'$"
    ):
        check_decoder("simplejpeg")
