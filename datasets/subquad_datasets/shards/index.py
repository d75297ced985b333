"""The index of a shard: which samples it has, where they are, and the sha256 of each and of the
whole.

SHARD.index is one line of JSON, the rows as they are in memory, and the sha256 of both. It is made
by one pass over the shard, which is never unpacked: no name in it can lead anywhere, and only
labels are looked into.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from subquad.errors import DataError
from subquad.record.storage import is_remote, listing, put, reaching, read_ranges
from subquad.record.stores import place_at
from subquad.security.limits import MEMBER, allow, read_whole
from subquad.security.strict_json import parse_json
from subquad.suggest import to_paste
from subquad_datasets.tars import open_tar, tar_content, tar_files
from subquad_datasets.text.lines import is_hidden

SUFFIX = ".index"
IMAGES = ("jpg", "jpeg", "png", "gif", "webp")
LABEL = "cls"
LABELS = (LABEL, "json", "txt")
"""Endings of labels; of several the first one counts, as others may be a picture's caption."""

_FORMAT = 1
_MOST_CLASSES = 1_000_000
_MOST_SHARDS = 100_000
_LONGEST_KEY = 1_000
_LONGEST_HEAD = 100_000
"""Bytes; the keys of all samples are held in memory, each with the room of the longest."""
_AT_ONCE = 256
"""Indices that are asked of a store at once."""
_MAGIC = re.compile(r"[*?[]").search


class _Head(BaseModel, strict=True, extra="forbid"):
    """The first line of an index."""

    format: int
    name: str
    size: int = Field(ge=0, lt=1 << 62)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    key_bytes: int = Field(ge=1, le=_LONGEST_KEY)


@dataclass(frozen=True)
class ShardIndex:
    """What a shard holds. N samples.

    Attributes:
        name: of the shard's file.
        size: its bytes.
        sha256: of the file, in hexadecimal digits.
        rows: (N,) structured: `key` bytes, `offset` and `size` of the picture in the file, `label`,
            `sha256` of the picture (32 bytes).
    """

    name: str
    size: int
    sha256: str
    rows: np.ndarray


def row_type(width: int) -> np.dtype:
    """The type of an index's rows, for keys of at most so many bytes."""
    return np.dtype(
        [
            ("key", f"S{width}"),
            ("offset", "<i8"),
            ("size", "<i8"),
            ("label", "<i4"),
            ("sha256", "u1", 32),
        ]
    )


def write_index(shard: Path) -> ShardIndex:
    """Read a shard, and write its index beside it.

    Raises:
        DataError: the shard cannot be read; or what is wrong with it, and with which of its
            members.
        DiskError: the index cannot be written.
    """
    with reaching(shard, DataError):
        index = _read_shard(shard)
    head = {"format": _FORMAT, "name": index.name, "size": index.size, "sha256": index.sha256}
    head["key_bytes"] = index.rows.dtype["key"].itemsize
    content = json.dumps(head).encode() + b"\n" + index.rows.tobytes()
    put({index_path(shard): content + hashlib.sha256(content).digest()})
    return index


def index_path(shard: Path) -> Path:
    """Where the index of a shard is."""
    return shard.with_name(shard.name + SUFFIX)


def read_index(shard: Path) -> ShardIndex:
    """The index of a shard of this machine; see `read_indices`."""
    path = index_path(shard)
    try:
        size = shard.stat().st_size
        data = read_whole(path)
    except FileNotFoundError as error:
        raise _missing(shard, error.filename) from None
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return _checked(shard, size, data)


def read_indices(shards: Sequence[Path], files: Mapping[str, Any]) -> Iterator[ShardIndex]:
    """The indices of shards, in order; each shard must still have the size that its index says.

    Args:
        files: see `files_of`.

    Raises:
        DataError: a shard or an index is missing, not readable, damaged, or they do not belong
            together.
    """
    if not is_remote(shards[0]):
        yield from map(read_index, shards)
        return
    for path in (path for shard in shards for path in (shard, index_path(shard))):
        if str(path) not in files:
            raise _missing(path.with_name(path.name.removesuffix(SUFFIX)), str(path))
    for start in range(0, len(shards), _AT_ONCE):
        some = shards[start : start + _AT_ONCE]
        paths = map(index_path, some)
        contents = read_ranges([(path, 0, files[str(path)]["size"]) for path in paths])
        for shard, data in zip(some, contents, strict=True):
            yield _checked(shard, files[str(shard)]["size"], data)


def files_of(shards: Sequence[Path]) -> dict[str, Mapping[str, Any]]:
    """What a store says of all files beside shards, by address; nothing of this machine's.

    Raises:
        DiskError: it cannot be asked.
    """
    folders = dict.fromkeys(shard.parent for shard in shards if is_remote(shard))
    return {
        str(folder / name): file for folder in folders for name, file in listing(folder).items()
    }


def _missing(shard: Path, path: str) -> DataError:
    remedy = f"; make it: {_maker(shard)}" if path == str(index_path(shard)) else ""
    return DataError(f"{path}: does not exist{remedy}")


def _checked(shard: Path, size: int, data: bytes) -> ShardIndex:
    index = _parsed(index_path(shard), data, shard)
    if size != index.size:
        raise DataError(
            f"{shard}: has {size:,} bytes, and its index says {index.size:,}: it was cut off or "
            f"replaced; bring it here again, or make the index anew: {_maker(shard)}"
        )
    return index


def _maker(shard: Path) -> str:
    return to_paste("data", "index", shard)


def _parsed(path: Path, data: bytes, shard: Path) -> ShardIndex:
    content = data[:-32]
    anew = f"make it anew: {_maker(shard)}"
    if hashlib.sha256(content).digest() != data[-32:]:
        raise DataError(f"{path}: damaged, or no index of a shard; {anew}")
    line, _, rows = content.partition(b"\n")
    allow(path, "bytes of the first line", len(line), _LONGEST_HEAD)
    try:
        head = _Head.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        raise DataError(f"{path}: no index of a shard ({reason}); {anew}") from None
    if head.format != _FORMAT:
        raise DataError(f"{path}: has format {head.format}, this subquad reads {_FORMAT}; {anew}")
    kind = row_type(head.key_bytes)
    if len(rows) % kind.itemsize or not rows:
        raise DataError(f"{path}: {len(rows)} bytes of rows, each has {kind.itemsize}; {anew}")
    table = np.frombuffer(rows, kind)
    offset, size, label = (table[name] for name in ("offset", "size", "label"))
    wrong = (offset < 0) | (size < 0) | (size > MEMBER) | (offset > head.size - size)
    wrong |= (label < 0) | (label >= _MOST_CLASSES)
    if wrong.any():
        row = int(np.argmax(wrong))
        reason = f"row {row + 1}: label {label[row]}, {size[row]} bytes from {offset[row]} on"
        raise DataError(f"{path}: {reason} are not in the shard's {head.size:,} bytes; {anew}")
    return ShardIndex(head.name, head.size, head.sha256, table)


def find_shards(patterns: Sequence[str], folder: str = "") -> list[Path]:
    """The shards that names or patterns mean, in order: `*`, `?` and `[...]` in the file's name,
    {000..999} anywhere.

    Args:
        patterns: at least one.
        folder: what they are seen from; a folder, or an address s3://..., gs://...

    Raises:
        DataError: one matches nothing, a shard is named twice, or there are too many.
        ConfigError: an address of another kind.
    """
    paths = [path for pattern in patterns for path in _matching(pattern, folder)]
    path, times = Counter(paths).most_common(1)[0]
    if times > 1:
        raise DataError(f"{path}: named {times} times")
    return paths


def _matching(pattern: str, folder: str) -> list[Path]:
    if any(
        abs(int(first) - int(last)) > _MOST_SHARDS
        for first, last in re.findall(r"{(-?\d+)\.\.(-?\d+)", pattern)
    ):
        raise DataError(f"{pattern}: means more than {_MOST_SHARDS:,} shards")
    names = [pattern]
    if "{" in pattern:
        from braceexpand import braceexpand

        names = list(islice(braceexpand(pattern), _MOST_SHARDS))
    paths = [place_at(f"{folder}/{name}" if folder else name) for name in names]
    with reaching(paths[0].parent, DataError):
        paths = [
            shard
            for path in paths
            for shard in (sorted(path.parent.glob(path.name)) if _MAGIC(path.name) else [path])
            if not is_hidden(shard.name)
        ]
    if not paths:
        raise DataError(f"{'/'.join(filter(None, (folder, pattern)))}: no shard has such a name")
    return paths


class _Member(NamedTuple):
    """A picture or a label. Of a picture `data` is the sha256, of a label all."""

    ending: str
    offset: int
    size: int
    data: bytes


class _Summed:
    """A stream that keeps the size and the sha256 of what went through it."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        self.size += len(data)
        return data


def _read_shard(shard: Path) -> ShardIndex:
    with shard.open("rb") as file:
        stream = _Summed(file)
        given: Any = stream
        with open_tar(shard, given, mode="r|", fault="no plain tar, damaged or cut off") as tar:
            rows = list(_rows(shard, tar))
    if not rows:
        raise DataError(f"{shard}: holds no samples")
    width = max(len(row[0]) for row in rows)
    return ShardIndex(
        shard.name, stream.size, stream.sha256.hexdigest(), np.array(rows, row_type(width))
    )


def _rows(shard: Path, tar: tarfile.TarFile) -> Iterator[tuple]:
    """A row for each sample: those of WebDataset, members that differ in their endings only.
    They need not be side by side.
    """
    samples = defaultdict[str, list[_Member]](list)
    for key, member in _members(shard, tar):
        samples[key].append(member)
    for key, parts in samples.items():
        _refuse_dots(shard, key, parts)
        name = key.encode(errors="surrogateescape")
        allow(f"{shard}: sample {key[:100]}", "bytes of its key", len(name), _LONGEST_KEY)
        image = _only(shard, key, parts, IMAGES, f"picture ({', '.join(IMAGES)})")
        endings = {part.ending for part in parts}
        ending = next((ending for ending in LABELS if ending in endings), LABEL)
        label = _only(shard, key, parts, (ending,), f"label ({', '.join(LABELS)})")
        sha256 = np.frombuffer(image.data, np.uint8)
        yield name, image.offset, image.size, _label(shard, key, label), sha256


def _refuse_dots(shard: Path, key: str, members: Sequence[_Member]) -> None:
    """Refuse members of which the name before the last dot is most likely a sample's: a label of
    such a name, or a picture where there is no plain one.
    """
    endings = {member.ending for member in members}
    sought = (LABEL, *(() if endings.intersection(IMAGES) else IMAGES))
    for member in members:
        inside, dot, last = member.ending.rpartition(".")
        if dot and last in sought:
            raise DataError(
                f"{shard}: {key}.{member.ending}: in WebDataset a sample's name ends at its "
                f"first dot, so this one is called {key}; rename it, for example to "
                f"{key}_{inside.replace('.', '_')}.{last}"
            )


def _members(shard: Path, tar: tarfile.TarFile) -> Iterator[tuple[str, _Member]]:
    """Keys of samples, each with one of its files."""
    from webdataset.tariterators import base_plus_ext

    for member in tar_files(shard, tar):
        if member.isdir():
            continue
        if (
            not member.isreg()
            or PurePosixPath(member.name).is_absolute()
            or ".." in PurePosixPath(member.name).parts
        ):
            raise DataError(
                f"{shard}: member {member.name!r} is a link, "
                "a device or a path that leads elsewhere"
            )
        key, ending = base_plus_ext(member.name)
        # as WebDataset passes over hidden files and such
        if key is not None and ending is not None:
            ending = ending.lower()
            data = b""
            if ending in (*IMAGES, *LABELS):
                data = tar_content(shard, tar, member)
            size = len(data)
            if ending in IMAGES:
                data = hashlib.sha256(data).digest()
            yield key, _Member(ending, member.offset_data, size, data)


def _only(
    shard: Path, key: str, members: Sequence[_Member], endings: Sequence[str], what: str
) -> _Member:
    """The member that has one of these endings."""
    found = [member for member in members if member.ending in endings]
    if len(found) != 1:
        raise DataError(f"{shard}: sample {key} has {'more than one' if found else 'no'} {what}")
    return found[0]


def _label(shard: Path, key: str, member: _Member) -> int:
    """The number of a label; of JSON it may be the value of "label" or "cls"."""
    text = member.data.strip().decode(errors="replace")
    if member.ending == "json":
        try:
            found = parse_json(text)
        except ValueError as error:
            raise DataError(f"{shard}: the label of sample {key}: {error}") from None
        if isinstance(found, dict):
            found = found.get("label", found.get(LABEL))
        text = str(found)
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) < _MOST_CLASSES):
        raise DataError(
            f"{shard}: the label of sample {key} is {text[:20]!r}, must be 0 to {_MOST_CLASSES - 1}"
        )
    return int(text)
