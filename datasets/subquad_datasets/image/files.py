"""PNG and JPEG images below `<split>/<class>/`, in a folder or a tar. The only place that needs
Pillow. N images.
"""

from __future__ import annotations

import io
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import read_whole
from subquad_datasets.decode import PNG, check_depth
from subquad_datasets.image.gray import to_gray
from subquad_datasets.tars import in_tar, tar_content, tar_files
from subquad_datasets.text.source import list_files, list_folders

ENDINGS = (".png", ".jpg", ".jpeg")
_Place = tuple[str, str, str]
"""Class, file name, and the whole name."""


@dataclass(frozen=True)
class ImageFiles:
    """Images of one split.

    Attributes:
        path: the folder or the tar.
        places: class, file name and name below `path` of each, sorted; a label is the position of
            its class.
        tarred: whether `path` is a tar.
    """

    path: Path
    places: tuple[_Place, ...]
    tarred: bool

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, sorted."""
        return tuple(sorted({place[0] for place in self.places}))

    def files(self) -> list[Path]:
        """What the contents depend on."""
        if self.tarred:
            return [self.path]
        return [self.path / place[2] for place in self.places]

    def images(self, side: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """(N, side * side) uint8 gray values, row by row, (N,) int64 labels, and what formats there
        were.

        Raises:
            DataError: an image cannot be read or has another size.
        """
        index = {place[2]: number for number, place in enumerate(self.places)}
        gray = np.empty((len(index), side * side), dtype=np.uint8)
        formats = set[str]()
        for name, data in self._contents(index):
            gray[index[name]] = decode(data, f"{self.path}/{name}", side)
            formats.add(format_of(data))
        label = {name: number for number, name in enumerate(self.classes)}
        return (
            gray,
            np.array([label[place[0]] for place in self.places], dtype=np.int64),
            sorted(formats),
        )

    def _contents(self, wanted: dict[str, int]) -> Iterator[tuple[str, bytes]]:
        """Each wanted file; a tar in its own order, since going back in a compressed one means
        starting anew.
        """
        if not self.tarred:
            yield from ((name, _read(self.path / name)) for name in wanted)
            return
        with in_tar(self.path) as tar:
            for member in tar_files(self.path, tar):
                if member.isfile() and member.name in wanted:
                    yield member.name, tar_content(self.path, tar, member)


def find_images(
    path: Path,
    members: list[tarfile.TarInfo] | None,
    split: str,
    endings: tuple[str, ...] = ENDINGS,
) -> ImageFiles | None:
    """The images of a split, None where there are none.

    Args:
        path: a folder or a tar.
        members: the tar's members, None for a folder.
        endings: which files are images.

    Raises:
        DataError: two members of a tar have the same name.
    """
    if members is None:
        names = [
            f"{split}/{folder}/{file.name}"
            for folder in list_folders(path / split)
            for file in list_files(path / split / folder, *endings)
        ]
    else:
        names = [member.name for member in members if member.isfile()]
    places = tuple(sorted(place for name in names if (place := _place(name, split, endings))))
    counts = Counter(member for _, _, member in places)
    for member, times in counts.items():
        if times > 1:
            raise DataError(f"{path}: member {member} is there twice")
    if places:
        return ImageFiles(path, places, members is not None)
    return None


def decode(data: bytes, name: str, side: int) -> np.ndarray:
    """(side * side,) uint8 gray values of a PNG or JPEG image.

    Raises:
        DataError: Pillow is not installed, the image cannot be read, or it has another size.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(
            "lra-image needs Pillow for PNG and JPEG files: pip install pillow"
        ) from None
    try:
        check_depth(data)
        quiet = warnings.catch_warnings(action="ignore")  # of its size, which is compared below
        with quiet, Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.size != (side, side):
                raise DataError(
                    f"{name}: {image.width} x {image.height} pixels, must be "
                    f"{side} x {side} (params.side)"
                )
            colours = np.asarray(image.convert("RGB"))
    except DataError:
        raise
    except UnidentifiedImageError:  # its text is the address of a Python object
        raise DataError(
            f"{name}: not a readable PNG or JPEG image (another format, or damaged)"
        ) from None
    except Exception as error:  # a damaged image fails in any way there is
        raise DataError(f"{name}: not a readable PNG or JPEG image ({error})") from error
    return to_gray(colours).reshape(-1)


def format_of(data: bytes) -> str:
    """ "PNG" or "JPEG", of an image that `decode` takes: by content, as a name does not make a
    lossy copy exact.
    """
    return "PNG" if data.startswith(PNG) else "JPEG"


def _place(name: str, split: str, endings: tuple[str, ...]) -> _Place | None:
    """Class, file name and whole name where a path ends in `<split>/<class>/<image>`."""
    parts = PurePosixPath(name).parts
    if len(parts) < 3 or parts[-3] != split or PurePosixPath(name).suffix.lower() not in endings:
        return None
    return parts[-2], parts[-1], name


def _read(path: Path) -> bytes:
    try:
        return read_whole(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
