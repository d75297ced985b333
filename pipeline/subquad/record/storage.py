"""What lies outside a run's own folder: its checkpoints, a copy of its small files, and data sets
that are URLs.

A place is a folder, or an address in an object store, s3://BUCKET/... or gs://BUCKET/... The layout
there is that below `--root`: STORAGE/runs/NAME/STAMP/... In an object store nothing is renamed or
appended to, and listings are never kept.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, cast
from urllib.parse import urlsplit

from filelock import FileLock
from platformdirs import user_cache_path
from upath import UPath

from subquad.errors import DataError, DiskError, RunError, SubquadError, UserError
from subquad.record.files import find_file, read_bytes, touching
from subquad.record.layout import is_run, is_study, runs_root
from subquad.record.models import Identity
from subquad.record.names import CHECKPOINTS, ERROR, LOCK, OWNER, RESULT, STOP
from subquad.record.stores import STORES, below, place_at
from subquad.record.sums import by_name, manifest_of, sum_of
from subquad.security import disk
from subquad.security.disk import building as building
from subquad.security.disk import check_own as check_own
from subquad.security.disk import close as close
from subquad.security.disk import opened, replacing
from subquad.security.downloads import Counted
from subquad.security.limits import allow_disk

SECONDS = 60.0
"""After which a store has not answered, all attempts of its library included."""
_SLOWEST = 1e6
"""Bytes a second that a store takes at least."""
_STAYS = (LOCK, OWNER, STOP)
"""What belongs to the process that works on a folder."""


def data_root() -> Path:
    """Where prepared data live: $SUBQUAD_DATA, else the user's cache folder."""
    given = os.environ.get("SUBQUAD_DATA")
    if given:
        return Path(given).resolve()
    return user_cache_path("subquad") / "data"


@dataclass(frozen=True)
class RunFolder:
    """The two places of a run, study or search: its folder, and what lies in storage.

    Attributes:
        path: the folder.
        storage: `resources.storage`; None: the folder has all of it.
    """

    path: Path
    storage: str | None = None
    _sent: dict[str, Any] = field(default_factory=dict, init=False, compare=False)
    """The manifest of what storage was sent."""
    _fetched: dict[str, Any] = field(default_factory=dict, init=False, compare=False)
    """Which version of its files came from there."""

    @staticmethod
    def of(run: Path) -> RunFolder:
        """A run, by what its folder says."""
        identity = find_file(Identity, run)
        return RunFolder(run, identity.storage if identity else None)

    @property
    def kept(self) -> Path:
        """Its place in storage, which is that below `runs/`; the folder itself without storage.

        Raises:
            RunError: the folder lies elsewhere, so that nobody knows its place.
        """
        if self.storage is None:
            return self.path
        runs = runs_root(self.path)
        if runs.name != "runs":
            raise RunError(
                f"{self.path}: must lie below a folder `runs`, as its checkpoints are in "
                f"{self.storage}/runs/..."
            )
        place = self.path.relative_to(runs.parent)
        kept = place_at(self.storage).joinpath(*place.parts)
        if disk.hold(kept):
            disk.refuse_links(kept)
        return kept

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints of a run are."""
        return self.kept / CHECKPOINTS

    def mirror(self) -> None:
        """Bring its small files to storage, those that changed since the last call; runs in it are
        left.

        Raises:
            DiskError: they cannot be written there.
        """
        target = self.kept
        if target == self.path:
            return
        with touching(self.path):
            now = manifest_of(by_name(self.path, _small_files(self.path)))
        changed = [name for name, entry in now.items() if self._sent.get(name) != entry]
        self._put([name for name in changed if name != RESULT], target)
        if RESULT in changed:  # it stands on the other files
            self._put([RESULT], target)
        before = self._sent.keys() or {RESULT, ERROR}
        for name in before - now.keys():
            remove(target / name)
        self._sent.clear()
        self._sent.update(now)

    def fetch(self) -> None:
        """Bring its small files from storage, those that changed there since the last call.

        Raises:
            DiskError: they cannot be read, or not be written here.
        """
        if self.kept == self.path:
            return
        now = _versions(self.kept)
        changed = [name for name in now if self._fetched.get(name) != now[name]]
        self.take(sorted(changed, key=lambda name: name == RESULT))  # it stands on the others
        self._fetched.update(now)
        if now:
            for name in {RESULT, ERROR} - now.keys():
                remove(self.path / name)

    def take(self, names: Iterable[str]) -> None:
        """Bring files from storage, those that are there.

        Raises:
            DiskError: they cannot be read, or not be written here.
        """
        for name in names:
            with suppress(FileNotFoundError):
                content = content_of(self.kept / name)
                put({below(self.path, name): content})
                self._sent[name] = sum_of(content)

    def _put(self, names: list[str], target: Path) -> None:
        contents = {}
        with touching(self.path):
            for name in names:
                contents[target / name] = read_bytes(self.path / name)
            put(contents)


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
    operation = getattr(files, f"_{name}")
    limit = seconds or SECONDS
    try:
        return sync(files.loop, operation, *given, timeout=limit, **more)
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
        return {path.relative_to(folder).as_posix(): {} for path in folder.rglob("*")}
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
            continue
        with reaching(path), replacing(path) as stream:
            stream.write(data)
    if not remote:
        return
    first = next(iter(remote))
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
        if first:
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


def _small_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*"), key=str):
        name = path.name
        if path.is_dir():
            if name != CHECKPOINTS and not is_run(path) and not is_study(path):
                yield from _small_files(path)
        elif name not in _STAYS and not name.startswith(".") and not name.endswith(".lock"):
            yield path


def _versions(folder: Path) -> dict[str, Any]:
    """Small files of a run in storage, each with what changes with its content."""
    found: dict[str, Any] = {}
    if isinstance(folder, UPath):
        for name, file in listing(folder).items():
            if CHECKPOINTS not in name.split("/"):
                found[name] = _marks(file)
        return found
    for path in _small_files(folder):
        with suppress(FileNotFoundError):
            about = path.stat()
            found[path.relative_to(folder).as_posix()] = about.st_ino, about.st_mtime_ns
    return found


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
        folder = above / _version_of(address, files)
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                with building(folder) as part:
                    for name, file in files.items():
                        source = place / name if name else place
                        target = below(part, f"{place.name}/{name}" if name else place.name)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        _fetch(source, target, file.get("size"))
        check_own(folder)
    return folder / place.name


def _version_of(address: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """A name for what files hold now, from what their store says of them."""
    marks = {name: _marks(file) for name, file in files.items()}
    return hashlib.sha256(json.dumps([address, marks], sort_keys=True).encode()).hexdigest()[:16]


def _marks(file: Mapping[str, Any]) -> list[str]:
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
    expected = size or 60 * SECONDS * _SLOWEST
    _do(source, "get_file", source.path, str(target), seconds=SECONDS + expected / _SLOWEST, **more)


_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "Last-Modified")
"""What stores call that which changes with a file's content."""
