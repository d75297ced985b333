"""The driver's machine, as workers on other machines have it: its files, and its judge of trials.

A run's folder is on the driver's machine. Workers read and write it through one actor there, which `driver:///path`
stands for: a file system for fsspec, so a run's `folder` is a `UPath` in them and nothing else knows.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout
from fsspec import AbstractFileSystem, register_implementation
from fsspec.implementations.local import LocalFileSystem
from upath import UPath
from upath.registry import register_implementation as register_path

from subquad import disk

PROTOCOL = "driver"


class _Head:
    """An actor on the driver's machine. What a file operation raises is returned, so that it keeps its class."""

    def __init__(self, judge: Callable[[Path], str] | None):
        self._local, self._judge = LocalFileSystem(), judge
        disk.hold(Path("/"))
        self._locks: dict[str, BaseFileLock] = {}
        self._judging = Lock()

    def do(self, name: str, *given: Any) -> tuple[Any, Exception | None]:
        """A file operation: one of the methods below, else of fsspec's local file system."""
        try:
            return (getattr(self, f"_{name}", None) or getattr(self._local, name))(*given), None
        except Exception as error:
            return None, error

    def stay(self) -> None:
        """Returns never; a call of it ends with the actor."""
        Event().wait()

    def judge(self, folder: str) -> str:
        """See `engine.loop.Signals`."""
        with self._judging:  # it remembers what it has read
            return self._judge(Path(folder)) if self._judge else ""

    def _write(self, path: str, mode: str, data: bytes) -> None:
        """Whole files replace others at once; what is appended is on the disk."""
        if mode == "wb":
            with disk.replacing(Path(path)) as stream:
                stream.write(data)
            return
        disk.make_folder(Path(path).parent, exist_ok=True)
        with disk.opened(Path(path), mode) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def _cat_file(self, path: str, start: int | None, end: int | None) -> bytes:
        with disk.opened(Path(path)) as stream:
            return stream.read()[start:end]

    def _mkdir(self, path: str) -> None:
        disk.make_folder(Path(path))

    def _makedirs(self, path: str, exist_ok: bool) -> None:
        disk.make_folder(Path(path), exist_ok=exist_ok)

    def _rm_file(self, path: str) -> None:
        disk.delete(Path(path))

    def _rm(self, path: str) -> None:
        disk.delete_tree(Path(path))

    def _claim(self, path: str, seconds: float) -> bool:
        """For the first rank of a new group too: its driver is the same, and the group before it has gone."""
        if path not in self._locks:
            lock = FileLock(path)
            try:
                lock.acquire(timeout=seconds)
            except Timeout:
                return False
            self._locks[path] = lock
        return True

    def _release(self, path: str) -> None:
        if lock := self._locks.pop(path, None):
            lock.release()


def ask_judge(folder: Path) -> str:
    """In a worker: what the search's judge says of a trial."""
    import ray

    return ray.get(_head().judge.remote(folder.path))  # pyright: ignore[reportAttributeAccessIssue]


@cache
def _head() -> Any:
    """In a worker: the actor. It outlives the worker, so the cluster is asked for it only once."""
    import ray

    return ray.get_actor(PROTOCOL)


@contextmanager
def head_here(judge: Callable[[Path], str] | None = None) -> Iterator[Callable[[], bool]]:
    """Let workers of the cluster that this process is connected to reach this machine's files for the block.

    Yields:
        what tells whether they no longer can: the actor has ended.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    head: Any = ray.remote(_Head).options(name=PROTOCOL, num_cpus=0, scheduling_strategy=here, max_concurrency=9)
    actor = head.remote(judge)
    staying = actor.stay.remote()
    try:
        yield lambda: bool(ray.wait([staying], timeout=0)[0])
    finally:
        ray.kill(actor)


class _DriverFiles(AbstractFileSystem):
    """The driver's files, in a worker."""

    protocol = PROTOCOL
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path.removeprefix(f"{PROTOCOL}://") if isinstance(path, str) else path

    def _do(self, name: str, *given: Any) -> Any:
        import ray

        result, error = ray.get(_head().do.remote(name, *given))
        if error is not None:
            raise error
        return result

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        return self._do("info", path)

    def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
        return self._do("ls", path, detail)

    def mkdir(self, path: str, create_parents: bool = True, **more: Any) -> None:
        self._do("mkdir", path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._do("makedirs", path, exist_ok)

    def rm_file(self, path: str) -> None:
        self._do("rm_file", path)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._do("rm", path)

    def rmdir(self, path: str) -> None:
        self._do("rmdir", path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        return self._do("cat_file", path, start, end)

    def _open(self, path: str, mode: str = "rb", *given: Any, **more: Any) -> Any:
        return io.BytesIO(self.cat_file(path)) if mode == "rb" else _Sent(self, path, mode)

    def lock(self, path: str) -> _DriverLock:
        """A lock of the driver's machine, as `filelock.FileLock` is of this one."""
        return _DriverLock(self, path)


class _DriverLock:
    def __init__(self, files: _DriverFiles, path: str):
        self._files, self._path = files, path

    def acquire(self, timeout: float) -> None:
        if not self._files._do("claim", self._path, timeout):
            raise Timeout(self._path)

    def release(self) -> None:
        self._files._do("release", self._path)


class _Sent(io.BytesIO):
    """A file of the driver that is written: whole when it is closed, or appended to at each flush."""

    def __init__(self, files: _DriverFiles, path: str, mode: str):
        super().__init__()
        self._files, self._path, self._mode = files, path, mode
        if mode == "xb":
            self._send()

    def _send(self) -> None:
        self._files._do("write", self._path, self._mode, self.getvalue())
        self._mode = "ab"
        self.seek(0)
        self.truncate()

    def flush(self) -> None:
        if self._mode == "ab" and self.tell():
            self._send()

    def close(self) -> None:
        if not self.closed and (self.tell() or self._mode == "wb"):
            self._send()
        super().close()


class _DriverPath(UPath):
    __slots__ = ()


register_implementation(PROTOCOL, _DriverFiles, clobber=True)
register_path(PROTOCOL, _DriverPath, clobber=True)
