"""The command line in a process of its own: forked from one that has imported torch, or begun anew.

A fork costs what the test does and not the seconds that importing torch and others takes. No module
of the project reads the environment when it is imported, so that a fork reads its own, as a process
that has begun anew does.
"""

from __future__ import annotations

import atexit
import importlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from pathlib import Path

_CONTEXT = get_context("forkserver")

_PRELOADED = [
    "torch._dynamo",
    "ray",
    "pydantic",
    "rich.table",
    "jinja2",
    "scipy.stats",
    "matplotlib.figure",
    "timm",
    "subquad.cli.train",
    "subquad.cli.tune",
    "subquad.execution.local",
    "subquad.engine.run",
    "subquad.reports.search_report",
    "subquad.tracking.publisher",
    "subquad_datasets.recall.dataset",
    "subquad_plugins.agf.mixer",
    "subquad_plugins.classification.task",
    "subquad_plugins.encoder.backbone",
]
"""What a training run with its report imports; none starts a thread. What is missing is passed
over.
"""


def ready() -> None:
    """Start what is forked from, so that it is no process of one test."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # of subquad too, but read when Ray is imported
    _CONTEXT.set_forkserver_preload(_PRELOADED)
    forkserver.ensure_running()


class Command:
    """A running command line, with what `subprocess.Popen` has.

    Args:
        function: "module:name" of what takes the arguments and returns the exit code.
        more: environment variables.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        function: str = "subquad.cli.main:main",
        **more: str,
    ):
        ready()
        self.args = list(arguments)
        self._folder = Path(tempfile.mkdtemp(prefix="subquad-test-"))
        weakref.finalize(self, shutil.rmtree, self._folder)
        for descriptor in ("1", "2"):
            (self._folder / descriptor).touch()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}
        self._process = _CONTEXT.Process(
            target=_main, args=(function, self.args, str(cwd), environment, self._folder)
        )
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """None while it runs; -N where signal N ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and what it wrote to stdout and stderr."""
        self.wait(timeout)
        return self.printed(), self.printed(2)

    def printed(self, descriptor: int = 1) -> str:
        """What it has written so far, to stdout or, as 2, to stderr."""
        return (self._folder / str(descriptor)).read_text(encoding="utf-8")

    def send_signal(self, number: int) -> None:
        """To this process alone; `os.killpg(self.pid, number)` sends it to what it started, too."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.returncode is None:
            self.kill()
        self.wait()


def cli(
    arguments: Sequence[str],
    cwd: Path,
    fault: str = "",
    check: int | None = 0,
    seconds: float = 300.0,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """A command line that has ended, with the exit code `check` unless that is None."""
    with Command(arguments, cwd, SUBQUAD_FAULT=fault, **more) as command:
        out, errors = command.communicate(seconds)
    assert command.returncode is not None
    if check is not None:
        assert command.returncode == check, f"exit {command.returncode}\n{out}\n{errors}"
    return subprocess.CompletedProcess(command.args, command.returncode, out, errors)


def _main(
    function: str, arguments: list[str], cwd: str, environment: Mapping[str, str], folder: Path
) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for number in (1, 2):
        with (folder / str(number)).open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout = io.TextIOWrapper(
        os.fdopen(1, "wb", closefd=False), encoding="utf-8", write_through=False
    )
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True
    )
    sys.argv[:] = ["subquad", *arguments]
    module, _, name = function.partition(":")
    code = getattr(importlib.import_module(module), name)(arguments)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # which multiprocessing leaves out
    sys.exit(code)
