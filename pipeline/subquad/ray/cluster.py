"""A Ray cluster of our own on this machine: never somebody else's, with a token, its dashboard on
loopback only.

It starts, works and stops in one side thread, as Linux ends Ray's processes with the thread that
started them. There Ray leaves Python's signal handlers alone, and the main thread can answer
signals.

Ray's placement-group cleaner asks a dashboard it finds by itself whether our job lives. With a
second cluster on the host it may ask that one, and then kills healthy workers; so the dashboard
gets a port we know, and the workers inherit its address.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from subquad.errors import TrainingFailed, UserError, by_class
from subquad.execution.signals import Signum, listen_again
from subquad.output.terminal import print_line
from subquad.processes import available_cpus

# Ray's own defaults poll the workers every 2 s, print every line twice and wait for ever.
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    # A thread that nobody waits for any more would connect again after the end.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # One machine's error is told, not each.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # That a group of workers waits for its room; the executor then looks again, as Ray may take a
    # lost node for room.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",
    # What Ray Train sets for itself. Where all of these are the job's own, workers use its
    # processes again.
    "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    # Worker groups start side by side; how many is the queue's to say.
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would give way to every other process of the machine, and lose what does not answer.
    "RAY_worker_niceness": "0",
    # Under `uv run` Ray would start every worker through uv again, from an uploaded copy of the
    # working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_START_SECONDS = (30, 90, 270)
"""That Ray's node may take to start, at each attempt; the first is Ray's own limit."""
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 120.0


def forget_token() -> None:
    """Make Ray read mode and token again: it keeps what it saw when it was first imported or last
    used.

    The loader is private, but it is what Ray's own command line resets after making a token.
    """
    try:
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):  # another Ray: a first cluster in a process works without
        return


class _Closed(list[str]):
    """A list to which Ray adds in vain."""

    def extend(self, more: Iterable[str]) -> None:
        pass


def job_config() -> Any:
    """What Ray's workers know of this process: not its working directory, which they would
    import from first.
    """
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = _Closed()
    return config


class _NotStarted(Exception):
    """Why Ray did not start."""


class _SideThread:
    """A thread that does calls, one after the other, while the main thread answers signals.

    Attributes:
        left: it is still at a call that nobody waits for any more.
    """

    def __init__(self) -> None:
        self.left = False
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._thread = Thread(target=self._run, name="ray", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for call in iter(self._calls.get, None):
            call()

    def do(
        self,
        call: Callable[[], Any],
        signum: Signum = lambda: 0,
        lost: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """What a call "returned" or "raised".

        Nothing where it had not ended some time after a signal, or once what it needs is `lost`.
        """
        outcome = dict[str, Any]()
        ended = Event()

        def guarded() -> None:
            try:
                outcome["returned"] = call()
            except BaseException as error:  # also what Ray raises as SystemExit
                outcome["raised"] = error
            ended.set()

        self._calls.put(guarded)
        waited = 0.0
        try:
            while not ended.is_set() and waited < _GRACE_SECONDS and not lost():
                ended.wait(timeout=_POLL_SECONDS)
                # Ray's C++ part takes SIGTERM for a crash, and when it stops leaves nobody to
                # answer it
                listen_again()
                waited += _POLL_SECONDS if signum() else 0.0
        finally:  # also at a second Ctrl-C
            self.left = not ended.is_set()
        return outcome

    def end(self) -> None:
        """Do no more calls."""
        self._calls.put(None)


class OwnCluster:
    """A cluster on this machine, which starts with the first work and stops with `stop`."""

    def __init__(self) -> None:
        self._side: _SideThread | None = None
        self._around = ExitStack()

    def do(
        self,
        work: Callable[[], Any],
        signum: Signum = lambda: 0,
        lost: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Do work on it.

        Args:
            work, signum, lost: see `_SideThread`.

        Returns:
            what the work "returned" or "raised"; nothing where it was left.

        Raises:
            UserError: Ray is not installed.
            TrainingFailed: Ray did not start.
        """
        if self._side is None:
            outcome = self._start(signum)
            if "returned" not in outcome or signum():
                return outcome
        assert self._side is not None
        return self._side.do(work, signum, lost)

    def _start(self, signum: Signum) -> dict[str, Any]:
        """Start Ray, in some attempts; nothing is started after a signal."""
        error: BaseException | None = None
        for seconds in _START_SECONDS:
            if error is not None:
                print_line(f"{error}; it is tried again, for up to {seconds} s", err=True)
            port = self._around.enter_context(_environment())
            self._side = _SideThread()
            outcome = self._side.do(partial(_start_ray, port, seconds), signum)
            if "returned" in outcome:
                return outcome
            self.stop()
            error = outcome.get("raised")
            if not isinstance(error, _NotStarted) or signum():
                return outcome
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(
                cause, (TimeoutError, ConnectionError)
            ):
                break  # a path that is too long, no room: as bad the next time
        raise TrainingFailed(
            f"{error}. Where the machine is overloaded, go on later, or without Ray by --local"
        ) from error

    def stop(self) -> None:
        """Stop it, and remove its files."""
        if self._side is not None and not self._side.left:
            self._side.do(_stop_ray)
            self._side.end()
        self._side = None
        self._around.close()


@contextmanager
def _environment() -> Iterator[int]:
    """Ray's settings and a folder for its files, for the block; gives a port for its dashboard."""
    with socket.socket() as probe:  # a TCP port of the loopback interface that is free now
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    before = dict(os.environ)
    if above := before.get("RAY_TMPDIR"):
        os.makedirs(above, exist_ok=True)
    # The paths of Ray's sockets may have 107 characters, so the folder's name is short.
    with tempfile.TemporaryDirectory(
        prefix="sq-ray-", dir=above, ignore_cleanup_errors=True
    ) as folder:
        os.environ.update(
            SETTINGS
            | {
                "RAY_AUTH_TOKEN": secrets.token_hex(32),
                "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}",
                "RAY_TMPDIR": folder,
            }
        )
        try:
            import ray  # noqa: F401

            yield port
        except ImportError as error:
            raise UserError(
                "Ray is not installed: `pip install 'subquad[ray]'`, or train with --local"
            ) from error
        finally:
            # Ray adds some of its own, a debugger hook among them
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)


def in_thread(
    call: Callable[[], Any],
    signum: Signum = lambda: 0,
    lost: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """What a call in a thread of its own "returned" or "raised"."""
    side = _SideThread()
    try:
        return side.do(call, signum, lost)
    finally:
        side.end()


def _start_ray(port: int, seconds: float) -> None:
    import ray

    # it warns that it leaves the signal handlers alone
    logging.getLogger("ray").setLevel(logging.ERROR)
    forget_token()
    try:
        with _private_parts(seconds):
            ray.init(
                address="local",
                job_config=job_config(),
                num_cpus=available_cpus(),
                include_dashboard=True,
                dashboard_host="127.0.0.1",
                dashboard_port=port,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except Exception as error:  # Ray has no class of its own for it
        raise _NotStarted(f"Ray did not start: {by_class(error).rstrip('.')}") from error


def _stop_ray() -> None:
    import ray

    ray.shutdown()


@contextmanager
def _private_parts(seconds: float) -> Iterator[None]:
    """What Ray has no setting for, for the block: how long it asks for its node, and the groups of
    its processes.

    Its own limit is 30 s. In groups of their own, its processes outlive a signal to the whole group
    of this one (by `timeout`, a scheduler, a terminal), which is ours to answer.
    """
    services: Any = import_module("ray._private.services")
    ask = services.get_node
    start = services.ConsolePopen

    def ask_repeatedly(*address: Any) -> Any:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(RuntimeError):
                return ask(*address)
            time.sleep(0.2)
        return ask(*address)

    services.get_node = ask_repeatedly
    if sys.platform == "linux":  # elsewhere Ray ends its processes by their group
        services.ConsolePopen = partial(start, process_group=0)
    try:
        yield
    finally:
        services.get_node = ask
        services.ConsolePopen = start
