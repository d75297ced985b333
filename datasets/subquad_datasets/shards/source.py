"""Where the pictures of new shards come from: folders of classes, or the archives of ILSVRC.
Nothing is unpacked.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from subquad.errors import DataError
from subquad.security.limits import LINE, MEMBER, allow, read_whole
from subquad.suggest import did_you_mean
from subquad_datasets.shards.index import IMAGES
from subquad_datasets.tars import open_tar, tar_files
from subquad_datasets.text.lines import check_start, check_utf8, fault
from subquad_datasets.text.source import list_files, list_folders

_ENDINGS = tuple(f".{ending}" for ending in IMAGES)


class Picture(NamedTuple):
    """One file to be sharded, in a file of the disk.

    Attributes:
        key: what the sample is called in the shard; it has no dot, at which WebDataset would cut
            it.
        kind: the name of its class.
        file: where its bytes are,
        offset: from where, and
        size: how many.
    """

    key: str
    kind: str
    file: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Its bytes.

        Raises:
            DataError: the file has become shorter.
        """
        allow(f"{self.file}: {self.key}", "bytes", self.size, MEMBER)
        with open(self.file, "rb") as stream:
            stream.seek(self.offset)
            data = stream.read(self.size)
        if len(data) != self.size:
            raise DataError(f"{self.file}: {self.key} has {len(data)} of {self.size} bytes")
        return data


def find_pictures(source: Path, labels: Path | None = None) -> list[Picture]:
    """All pictures of a source, by class and name.

    Args:
        source: a folder `<class>/*.jpg`; or a tar of tars `<class>.tar`, as
            ILSVRC2012_img_train.tar; or, with `labels`, a tar of pictures, as
            ILSVRC2012_img_val.tar.
        labels: a text file: `<file name> <class>` in each line, with blanks or a comma between
            (more fields are passed over, names may lack their ending); or one class a line, for the
            pictures by name.

    Raises:
        DataError: another layout, no pictures, or two of the same key.
        OSError: it cannot be read.
    """
    if source.is_dir() and labels is not None:
        raise DataError(
            f"--labels has no effect with a folder: the folders in {source} name the classes"
        )
    pictures = list(_folder(source) if source.is_dir() else _archive(source, labels))
    if not pictures:
        raise DataError(
            f"{source}: no pictures: needs <class>/*{', *'.join(_ENDINGS)}, or tars of them"
        )
    key, times = Counter(picture.key for picture in pictures).most_common(1)[0]
    if times > 1:
        raise DataError(f"{source}: {times} pictures would have the key {key}: rename all but one")
    return sorted(pictures, key=lambda picture: (picture.kind, picture.key))


def read_classes(path: Path) -> list[str]:
    """The class names of a file, one a line.

    Raises:
        DataError: it is not UTF-8, holds none, or one twice.
        OSError: it cannot be read.
    """
    data = read_whole(path, LINE)
    check_start(path, data)
    check_utf8(path, data)
    lines = dict[str, int]()
    for number, line in enumerate(data.decode().splitlines(), 1):
        name = line.strip()
        if name in lines:
            raise fault(path, number, f"class {name} is on line {lines[name]} already")
        if name:
            lines[name] = number
    if not lines:
        raise fault(path, 1, "holds no class")
    return list(lines)


def chosen_classes(path: Path, known: Sequence[str]) -> list[str]:
    """The classes that a file names, in the order in which they are known; words after a name are
    for readers.

    Raises:
        DataError: one is not known.
    """
    lines = read_classes(path)
    there = set(known)
    names = {line if line in there else line.split()[0] for line in lines}
    if unknown := min(names - there, default=None):
        near = did_you_mean(unknown, known)
        raise DataError(f"{path}: class {unknown} is not among the {len(known)} there are{near}")
    return [name for name in known if name in names]


def _folder(source: Path) -> Iterator[Picture]:
    for kind in list_folders(source):
        for path in list_files(source / kind, *_ENDINGS):
            yield Picture(_key(path.name, f"{kind}/"), kind, str(path), 0, path.stat().st_size)


def _archive(source: Path, labels: Path | None) -> Iterator[Picture]:
    with source.open("rb") as stream:
        members = list(_members(source, stream))
        if labels is not None:
            yield from _labelled(source, members, labels)
            return
        for outer in members:
            if outer.name.endswith(".tar"):
                kind = PurePosixPath(outer.name).stem
                for member in _members(source, stream, outer):
                    if member.name.lower().endswith(_ENDINGS):
                        key = _key(member.name, f"{kind}/")
                        yield Picture(key, kind, str(source), member.offset_data, member.size)


def _members(
    source: Path, stream: BinaryIO, outer: tarfile.TarInfo | None = None
) -> Iterator[tarfile.TarInfo]:
    """Files of a tar, or of one that is a file of it; their offsets are the stream's."""
    start = outer.offset_data if outer else 0
    stream.seek(start)
    with open_tar(source, stream, fault="no folder and no plain tar, damaged or cut off") as tar:
        files = tar_files(source, tar, start, start + outer.size if outer else None)
        yield from (member for member in files if member.isreg())


def _labelled(source: Path, members: list[tarfile.TarInfo], labels: Path) -> Iterator[Picture]:
    pictures = sorted(
        (picture for picture in members if picture.name.lower().endswith(_ENDINGS)),
        key=lambda picture: picture.name,
    )
    kinds = _kinds(labels, [_key(picture.name) for picture in pictures])
    for picture in pictures:
        if (name := _key(picture.name)) not in kinds:
            raise DataError(f"{labels}: names no class for {picture.name} of {source}")
        yield Picture(name, kinds[name], str(source), picture.offset_data, picture.size)


def _kinds(labels: Path, names: Sequence[str]) -> dict[str, str]:
    """The class of each picture, by key."""
    lines = [re.split(r"[\s,]+", line.strip()) for line in read_whole(labels).decode().splitlines()]
    if any(len(line) > 1 for line in lines):
        return {_key(line[0]): line[1] for line in lines if len(line) > 1}
    kinds = [line[0] for line in lines if line[0]]
    if len(kinds) != len(names):
        raise DataError(f"{labels}: {len(kinds)} classes for {len(names)} pictures")
    return dict(zip(names, kinds, strict=True))


def _key(name: str, above: str = "") -> str:
    path = PurePosixPath(name)
    if path.suffix.lower() in _ENDINGS:
        stem = path.name[: -len(path.suffix)]
    else:
        stem = path.name
    return above + stem.replace(".", "_")
