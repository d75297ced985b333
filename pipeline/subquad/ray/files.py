"""The driver, as workers have it: who answers what they ask, and on other machines its files.

A run's folder is on the driver's machine. Workers read and write it through one actor there, which
`driver:///path` stands for: a file system for fsspec, so a run's `folder` is a `UPath` in them and
nothing else knows.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout
from fsspec import AbstractFileSystem, register_implementation
from fsspec.implementations.local import LocalFileSystem
from upath import UPath
from upath.registry import register_implementation as register_path

from subquad.errors import by_class
from subquad.security import disk

PROTOCOL = "driver"
_LISTEN_SECONDS = 1.0

Question = tuple[str, Any]
"""Who or what it is about, and what is told with it."""


class _Head:
    """An actor on the driver's machine. What a file operation raises is returned, so that it
    keeps its class.

    Ray starts its process again if that dies. Then calls are made again, but for those that would
    do something twice: they fail in the worker, whose run goes on from its newest checkpoint.
    """

    def __init__(self) -> None:
        self._local = LocalFileSystem()
        disk.hold(Path("/"))
        self._locks: dict[str, BaseFileLock] = {}
        self._waiting: dict[str, tuple[Question, SimpleQueue[Any]]] = {}
        self._has_question = Event()

    def do(self, name: str, *given: Any) -> tuple[Any, Exception | None]:
        """A file operation: one of the methods below, else of fsspec's local file system."""
        try:
            return (getattr(self, f"_{name}", None) or getattr(self._local, name))(*given), None
        except Exception as error:
            return None, error

    def ask(self, question: Question) -> Any:
        """The driver's answer to a worker."""
        answered = SimpleQueue[Any]()
        self._waiting[uuid.uuid4().hex] = (question, answered)
        self._has_question.set()
        return answered.get()

    def exchange(self, answers: Mapping[str, Any]) -> dict[str, Question]:
        """For the driver: take its answers, and wait a moment for questions.

        Returns:
            all without an answer, so that nothing is lost where a call has to be made again.
        """
        for name, answer in answers.items():
            if name in self._waiting:
                self._waiting.pop(name)[1].put(answer)
        self._has_question.wait(_LISTEN_SECONDS)
        self._has_question.clear()
        return {name: question for name, (question, _) in list(self._waiting.items())}

    def _replace(self, path: str, data: bytes) -> None:
        with disk.replacing(Path(path)) as stream:
            stream.write(data)

    def _extend(self, path: str, data: bytes, mode: str) -> None:
        """Create a file ("xb") or append to it ("ab"); then it is on the disk."""
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
        """For the first rank of a new group too: its driver is the same, and the group before it
        has gone.
        """
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


def ask_driver(question: Question) -> Any:
    """In a worker: what the driver answers."""
    import ray

    ask = _head().ask.options(concurrency_group="asking", max_task_retries=0)
    return ray.get(ask.remote(question))


@cache
def _head() -> Any:
    """The actor. It outlives a worker, so the cluster is asked for it only once."""
    import ray

    return ray.get_actor(PROTOCOL)


def _serve(
    actor: Any, answer: Callable[[Question], Any], lost: Callable[[str], None], over: Event
) -> None:
    """Answer until it is over, or no worker reaches this process any more."""
    import ray

    exchange = actor.exchange.options(concurrency_group="driver")
    answers = dict[str, Any]()
    while not over.is_set():
        try:
            questions: Any = ray.get(exchange.remote(answers))
        except Exception as error:  # of Ray: the machine or the whole cluster has ended
            if not over.is_set():
                lost(by_class(error))
            return
        answers = {name: answer(question) for name, question in questions.items()}


@contextmanager
def driver_here(answer: Callable[[Question], Any], lost: Callable[[str], None]) -> Iterator[None]:
    """Answer workers of the cluster that this process is connected to, and let them reach this
    machine's files, for the block.

    Args:
        answer: called in a thread of its own, with one question at a time.
        lost: called, with the reason, where no worker reaches this process any more.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    make: Any = ray.remote
    actor = (
        make(concurrency_groups={"asking": 9, "driver": 1})(_Head)
        .options(
            name=PROTOCOL,
            num_cpus=0,
            scheduling_strategy=here,
            max_concurrency=9,
            max_restarts=-1,
            max_task_retries=-1,
        )
        .remote()
    )
    over = Event()
    thread = Thread(target=_serve, args=(actor, answer, lost, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=2 * _LISTEN_SECONDS)  # Ray tells on the screen of a call that is killed
        ray.kill(actor)
        _head.cache_clear()  # Tune reaches files through it in this process too
        with suppress(ValueError):  # until its name is free for the next one
            while ray.get_actor(PROTOCOL):
                time.sleep(0.05)


class _DriverFiles(AbstractFileSystem):
    """The driver's files, in a worker."""

    protocol = PROTOCOL
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, str):
            return path.removeprefix(f"{PROTOCOL}://")
        return path

    def _do(self, name: str, *given: Any) -> Any:
        import ray

        again = 0 if name == "extend" else -1
        result, error = ray.get(_head().do.options(max_task_retries=again).remote(name, *given))
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

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **more: Any
    ) -> bytes:
        return self._do("cat_file", path, start, end)

    def _open(self, path: str, mode: str = "rb", *given: Any, **more: Any) -> Any:
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        return _Sent(self, path, mode)

    def lock(self, path: str) -> _DriverLock:
        """A lock of the driver's machine, as `filelock.FileLock` is of this one."""
        return _DriverLock(self, path)


class _DriverLock:
    def __init__(self, files: _DriverFiles, path: str):
        self._files = files
        self._path = path

    def acquire(self, timeout: float) -> None:
        if not self._files._do("claim", self._path, timeout):
            raise Timeout(self._path)

    def release(self) -> None:
        self._files._do("release", self._path)


class _Sent(io.BytesIO):
    """A file of the driver that is written: whole when it is closed, or appended to at each
    flush.
    """

    def __init__(self, files: _DriverFiles, path: str, mode: str):
        super().__init__()
        self._files = files
        self._path = path
        self._mode = mode
        if mode == "xb":
            self._send()

    def _send(self) -> None:
        data = self.getvalue()
        if self._mode == "wb":
            self._files._do("replace", self._path, data)
        else:
            self._files._do("extend", self._path, data, self._mode)
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
