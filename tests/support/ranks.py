"""Ranks as forks of one process that has imported all that training needs: a start costs no
import.
"""

from __future__ import annotations

import errno
import importlib
import math
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from small_run import one_run

from subquad.engine import checkpoint, faults, state
from subquad.engine.group import Group
from subquad.execution.worker import work
from subquad.experiment import Run
from subquad.processes import forking_context, settle

_IMPORTED = [
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed._composable.replicate",
    "torch._dynamo",
    "subquad.cost",
    "subquad.trained.model",
    "subquad.trained.verify",
]
"""What a rank imports of others or of us while it begins; what is missing is passed over."""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        code: its exit code; -N where signal N ended it.
        value: what its function returned, None where it did not.
        error: what it raised, in one line with its type; "" for nothing.
        trace: the traceback of that.
    """

    code: int
    value: Any = None
    error: str = ""
    trace: str = ""


class Ranks:
    """Starts groups of processes, one after the other."""

    def __enter__(self) -> Ranks:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the local executor does
        context = forking_context()
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, dict(os.environ)))
        self._process.start()
        far.close()
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def call(
        self,
        act: Callable[..., Any],
        arguments: Sequence[Any] = (),
        count: int = 1,
        fault: str = "",
        limit: float = 300,
    ) -> list[Ended]:
        """Call `act(rank, *arguments)` in `count` processes, and wait for all of them.

        Args:
            fault: see `subquad.engine.faults`.
            limit: seconds; after them the processes are killed.
        """
        self._pipe.send((act, tuple(arguments), count, fault, limit))
        return self._pipe.recv()

    def train(
        self, run: Run, workers: int, fault: str = "", around: Callable[[], None] | None = None
    ) -> list[Ended]:
        """Do a run, or go on with it, on so many ranks.

        Args:
            around: called in each rank before it begins.
        """
        with tempfile.TemporaryDirectory() as scratch:
            return self.call(_train, (workers, scratch, run.as_values(), around), workers, fault)


def _train(
    rank: int, workers: int, scratch: str, plain: dict[str, Any], around: Callable[[], None] | None
) -> None:
    if around:
        around()
    if workers > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{scratch}/rendezvous", rank=rank, world_size=workers
        )
    group = Group(rank, workers)
    work(one_run(plain), group, lambda: 0, restarts=True)
    if workers > 1:
        dist.destroy_process_group()


def add_to_environment(variables: dict[str, str]) -> None:
    """In a rank, before it begins."""
    os.environ.update(variables)


def full_disk_of_the_second_rank() -> None:
    """In a rank, before it begins: from step 13 on the second one has no room for its shards."""
    write = checkpoint._write

    def full(folder: Path, contents: Any) -> Any:
        if folder.name >= "step-00000013" and any("-00001-of-" in name for name in contents):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(folder, contents)

    checkpoint._write = full


def no_number_on_the_second_rank() -> None:
    """In a rank, before it begins: what the second one saves has a weight that is no number."""
    copied = state.copied

    def spoilt(tensors: Any, *, whole: bool) -> Any:
        found = copied(tensors, whole=whole)
        if dist.get_rank() == 1 and "head.weight" in found:
            found["head.weight"][-1] = math.nan
        return found

    state.copied = spoilt


def _serve(pipe: Connection, environment: dict[str, str]) -> None:
    settle({**environment, "OMP_NUM_THREADS": "1"})
    torch.set_num_threads(1)
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        if request is None:
            return
        pipe.send(_together(*request))


def _together(
    act: Callable[..., Any], arguments: tuple[Any, ...], count: int, fault: str, limit: float
) -> list[Ended]:
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch) / str(rank) for rank in range(count)]
        pids = [_fork(partial(act, rank, *arguments), paths[rank], fault) for rank in range(count)]
        codes = _codes(pids, time.monotonic() + limit)
        return [_ended(code, path) for code, path in zip(codes, paths, strict=True)]


def _ended(code: int, path: Path) -> Ended:
    return Ended(code, *pickle.loads(path.read_bytes())) if path.exists() else Ended(code)  # noqa: S301


def _codes(pids: Sequence[int], end: float) -> list[int]:
    """The exit codes; when one dies by a signal, or time is over, the others are killed."""
    codes = dict[int, int]()
    while len(codes) < len(pids):
        for pid in pids:
            if pid in codes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        broken = any(code < 0 for code in codes.values()) or time.monotonic() > end
        for pid in pids if broken else ():
            if pid not in codes:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def _fork(act: Callable[[], Any], path: Path, fault: str) -> int:
    """A child that calls `act` and leaves what came of it in a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ["SUBQUAD_FAULT"] = fault
        importlib.reload(faults)
        path.write_bytes(pickle.dumps((act(),)))
        code = 0
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
        path.write_bytes(pickle.dumps((None, message, traceback.format_exc())))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
