"""Processes of this machine that begin with torch imported."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from platformdirs import user_cache_path

_SAFE_PATH = "PYTHONSAFEPATH"
"""With it a types.py or json.py in the working directory takes no part in a new Python."""


def available_cpus() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def forking_context() -> ForkServerContext:
    """Starts processes as forks of one server, which imports torch once for all of them: seconds of
    CPU.

    A fork of this process itself would copy torch's threads half-alive; the server has none. What
    it starts calls `settle` first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "subquad.nn"])
    # A SIGTERM to every process of a job is the driver's to answer, so the server starts with it
    # blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    before_path = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if before_path is None:
            del os.environ[_SAFE_PATH]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def settle(environment: Mapping[str, str]) -> None:
    """In a new process: take the environment its starter has now, leave Ctrl-C to it, and let
    SIGTERM through.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def keep_strange_code_out() -> None:
    """Let this process, and each Python that it starts, load no code that others put where it
    stands.

    Nothing of the working directory is imported by a new Python, neither modules nor plugins'
    metadata. Matplotlib, which would read settings there, and TeX's among them, is imported from
    elsewhere where there are any. PyTorch's compiler has a folder of this user alone for what it
    loads again later: by default it is a folder of /tmp whose name others can guess. Where there is
    no cache folder to write in, it is kept for this process alone. What the user has set stays.
    """
    os.environ.setdefault(_SAFE_PATH, "1")
    if os.path.lexists("matplotlibrc"):
        _import_from_elsewhere("matplotlib")
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    folder = user_cache_path("subquad") / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        is_own = about.st_uid == os.getuid() and not about.st_mode & 0o022
    except OSError:
        is_own = False
    if not is_own:
        folder = tempfile.mkdtemp(prefix="subquad-compiled-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def _import_from_elsewhere(module: str) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir("/")
    try:
        import_module(module)
    finally:
        os.fchdir(here)
        os.close(here)
