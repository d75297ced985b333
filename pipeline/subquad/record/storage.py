"""Files of places: of a folder, of an object store (s3://BUCKET/... or gs://BUCKET/...), and data
sets that are URLs.

In an object store nothing is renamed or appended to, and listings are never kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, cast
from urllib.parse import urlsplit

from filelock import FileLock
from platformdirs import user_cache_path
from upath import UPath

from subquad.errors import DataError, DiskError, RunError, SubquadError, UserError
from subquad.record.files import read_bytes, touching
from subquad.record.stores import STORES, below, place_at
from subquad.security import disk
from subquad.security.disk import building as building
from subquad.security.disk import check_own as check_own
from subquad.security.disk import close as close
from subquad.security.disk import opened, replacing
from subquad.security.downloads import Counted
from subquad.security.limits import allow_disk

SECONDS = 60.0
"""After which a store has not answered, all attempts of its library included."""
_TRIES = 2
_SLOWEST = 1e6
"""Bytes a second that a store takes at least."""


def data_root() -> Path:
    """Where prepared data live: $SUBQUAD_DATA, else the user's cache folder."""
    given = os.environ.get("SUBQUAD_DATA")
    return Path(given).resolve() if given else user_cache_path("subquad") / "data"


def is_remote(path: Path) -> bool:
    """Whether a place lies in an object store."""
    return isinstance(path, UPath)


def reason_of(error: BaseException) -> str:
    """What went wrong in one line."""
    words = str(getattr(error, "strerror", None) or error).split()
    if isinstance(error, FileNotFoundError) and len(words) < 2:  # only its name again
        return "there is no such file, or it may not be read"
    return " ".join(words)[:300] or type(error).__name__


def _do(
    place: Path | UPath, name: str, *given: Any, seconds: float | None = None, **more: Any
) -> Any:
    """What an operation of a place's file system returns.

    Raises:
        TimeoutError: no answer; some libraries would wait for ever for a server that takes no data.
    """
    from fsspec.asyn import FSTimeoutError, sync

    files: Any = cast("UPath", place).fs
    if not files.async_impl:
        return getattr(files, name)(*given, **more)
    limit = seconds or SECONDS
    try:
        return sync(files.loop, getattr(files, f"_{name}"), *given, timeout=limit, **more)
    except FSTimeoutError as error:
        raise TimeoutError(f"no answer within {limit:.0f} s") from error


@contextmanager
def reaching(place: Path | UPath, kind: type[UserError] = DiskError) -> Iterator[None]:
    """Whatever goes wrong with a place in the block is a user's error of this kind, in one line."""
    try:
        yield
    except SubquadError:
        raise
    except Exception as error:  # of the store's own library: each has exceptions of its own
        if isinstance(error.__cause__, SubquadError):
            raise error.__cause__ from None
        raise kind(f"{place}: {reason_of(error)}") from error


def listing(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Names of all files below a folder, with `/`, and what its store says of each.

    Raises:
        DiskError: it cannot be listed.
    """
    if not isinstance(folder, UPath):
        found = {}
        for above, *names in os.walk(folder):
            below_it = above[len(str(folder)) :].lstrip(os.sep)
            found |= {os.path.join(below_it, name): {} for name in chain(*names)}
        return found
    names = {}
    above = f"{folder.path.rstrip('/')}/"
    with reaching(folder):
        for path, info in _do(folder, "find", folder.path, detail=True).items():
            if path.startswith(above):
                name = path.removeprefix(above)
                below(folder, name)
                names[name] = info
    return names


def content_of(path: Path) -> bytes:
    """A file's content.

    Raises:
        OSError: it is not there; or, of this machine, cannot be read.
        DiskError: its store cannot be reached, or refuses it.
    """
    if not isinstance(path, UPath):
        return read_bytes(path)
    with reaching(path), suppress(FileNotFoundError):
        return _do(path, "cat_file", path.path, seconds=60 * SECONDS)
    raise FileNotFoundError(errno.ENOENT, "no such file", str(path))


def read_ranges(ranges: Sequence[tuple[Path, int, int]]) -> list[bytes]:
    """Parts of files of one store, asked for at once; what does not come is asked for once more.

    Args:
        ranges: at least one byte each: file, first byte, end.

    Raises:
        DataError: one does not come, or not all of it.
    """
    found: dict[int, Any] = {}
    for _ in range(_TRIES):
        missing = [
            number for number in range(len(ranges)) if _short(found.get(number), ranges[number])
        ]
        if missing:
            places, starts, ends = zip(*(ranges[number] for number in missing), strict=True)
            seconds = SECONDS + (sum(ends) - sum(starts)) / _SLOWEST
            paths = [place.path for place in places]
            with reaching(places[0].parent, DataError):
                answers = _do(places[0], "cat_ranges", paths, starts, ends, seconds=seconds)
            found.update(zip(missing, answers, strict=True))
    for number, wanted in enumerate(ranges):
        if reason := _short(found[number], wanted):
            place, start, end = wanted
            raise DataError(f"{place}: bytes {start:,} to {end:,} cannot be read: {reason}")
    return [found[number] for number in range(len(ranges))]


def _short(answer: Any, wanted: tuple[Path, int, int]) -> str:
    """Why an answer is not what was asked for; "" where it is."""
    if isinstance(answer, bytes):
        _, start, end = wanted
        return "" if len(answer) == end - start else f"{len(answer):,} bytes came"
    return reason_of(answer) if answer else "there was no answer"


def stream_of(path: Path) -> IO[bytes]:
    """A file's content as a stream of this machine, which has a descriptor; see `content_of`."""
    if not is_remote(path):
        return opened(path)
    content = content_of(path)
    with touching(Path(gettempdir())):
        stream = TemporaryFile()  # noqa: SIM115 - the caller's
        stream.write(content)
        stream.seek(0)
    return stream


def put(files: Mapping[Path, bytes]) -> None:
    """Write small files, each whole or not at all, all at once where the store can do that.

    Raises:
        DiskError: one cannot be written.
    """
    remote: dict[UPath, bytes] = {}
    for path, data in files.items():
        if isinstance(path, UPath):
            remote[path] = data
        else:
            with reaching(path), replacing(path) as stream:
                stream.write(data)
    for first in list(remote)[:1]:
        contents = {path.path: data for path, data in remote.items()}
        size = sum(map(len, contents.values()))
        with reaching(first.parent):
            _do(first, "pipe", contents, seconds=SECONDS + size / _SLOWEST)


def remove(path: Path) -> None:
    """Delete a file that may be gone.

    Raises:
        DiskError: it cannot be deleted.
    """
    with reaching(path), suppress(FileNotFoundError):
        if isinstance(path, UPath):
            _do(path, "rm_file", path.path)
        else:
            disk.delete(path)


def remove_tree(folder: Path, first: str = "") -> None:
    """Delete a folder as far as that works, a file of it first."""
    if not isinstance(folder, UPath):
        disk.delete_tree(folder / first)
        disk.delete_tree(folder)
        return
    with suppress(DiskError), reaching(folder):
        if first:
            remove(folder / first)
        _do(folder, "rm", folder.path, recursive=True)


def check_storage(storage: str) -> None:
    """Refuse storage that cannot be written, before anything is made.

    Raises:
        RunError: the reason.
        UserError: a package is missing.
    """
    probe = place_at(storage) / "runs" / f".probe-{os.getpid()}"
    try:
        put({probe: b""})
        remove(probe)
    except DiskError as error:
        reason = reason_of(error.__cause__ or error)
        raise RunError(f"resources.storage: {storage} cannot be used: {reason}") from error


def fetched(address: str, root: Path) -> Path:
    """A data set's file or folder on this machine; it is copied once for each content it has had.

    Args:
        root: folder for prepared data.

    Raises:
        DataError: it is not there, or cannot be copied.
    """
    place = place_at(address)
    if not isinstance(place, UPath):
        return place
    with reaching(place, DataError):
        info = _do(place, "info", place.path)
        files: dict[str, Mapping[str, Any]] = {"": info}
        if info.get("type") == "directory" and urlsplit(address).scheme in STORES:
            files = listing(place)
        if not files:
            raise DataError(f"{address}: there is nothing")
        above = root / "fetched"
        above.mkdir(parents=True, exist_ok=True)
        marks = {name: marks_of(file) for name, file in files.items()}
        content = json.dumps([address, marks], sort_keys=True).encode()
        folder = above / hashlib.sha256(content).hexdigest()[:16]
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                with building(folder) as part:
                    for name, file in files.items():
                        own = f"/{name}" if name else ""
                        target = below(part, f"{place.name}{own}")
                        target.parent.mkdir(parents=True, exist_ok=True)
                        _fetch(place / name if name else place, target, file.get("size"))
        check_own(folder)
    return folder / place.name


def marks_of(file: Mapping[str, Any]) -> list[str]:
    """What a store says of a file that changes with its content."""
    return [str(file.get(key)) for key in ("size", *_VERSIONS)]


def _fetch(source: UPath, target: Path, size: int | None) -> None:
    """Copy one file of a store or server.

    Raises:
        DataError: it is too large for this machine, or larger than was stated.
    """
    allow_disk(source, size or 0, target.parent)
    more = {}
    if source.protocol not in STORES:
        more["callback"] = Counted(str(source), size)
    _do(
        source,
        "get_file",
        source.path,
        str(target),
        seconds=SECONDS + (size or 60 * SECONDS * _SLOWEST) / _SLOWEST,
        **more,
    )


_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "Last-Modified")
"""What stores call that which changes with a file's content."""
