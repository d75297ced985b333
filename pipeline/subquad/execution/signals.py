"""Ctrl-C and SIGTERM: the first asks the run to save and stop, the second stops at once."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from subquad.record.files import read_bytes, write_text
from subquad.record.storage import remove

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.2
Signum = Callable[[], int]
"""Gives the number of the signal that asks to stop, 0 where none does."""


class _Listener:
    """Handles signals for one block, and tells the block around it."""

    def __init__(self, around: Any, stop: Path | None):
        self.first = 0
        self._around = around if isinstance(around, _Listener) else None
        self._stop = stop

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.first:
            raise KeyboardInterrupt(signum)
        self.hear(signum)

    def hear(self, signum: int) -> None:
        """Note the first signal."""
        self.first = signum
        if self._stop is not None:
            write_text(self._stop, str(signum))
        if self._around is not None and not self._around.first:
            self._around.hear(signum)

    def inherit(self) -> None:
        """Take over a signal that the block around has heard before."""
        if self._around is not None and self._around.first:
            self.hear(self._around.first)


@contextmanager
def listening(stop: Path | None = None) -> Iterator[Signum]:
    """Catch SIGINT and SIGTERM in the main thread while the block runs; yields what gives the first
    one's number.

    Blocks may lie within each other: what one hears, the ones around it and those that begin later
    have heard too.

    Args:
        stop: file that the first signal's number is written to, for ranks in other processes.
    """
    if stop is not None:
        remove(stop)
    before = {number: signal.getsignal(number) for number in _STOPPING}
    listener = _Listener(before[signal.SIGTERM], stop)
    try:
        for number in _STOPPING:
            signal.signal(number, listener)
        listener.inherit()
        yield lambda: listener.first
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen_again() -> None:
    """Give the signals back to Python's handlers, after a library took them in C."""
    for number in _STOPPING:
        signal.signal(number, signal.getsignal(number))


def stop_watch(look: Signum) -> Signum:
    """For a rank in another process: what gives the signal number that `look` finds.

    It looks five times a second at most, so that a call costs a clock reading. The end of a driver
    that started this process itself counts as SIGTERM.
    """
    due = 0.0
    heard = 0
    parent = multiprocessing.parent_process()

    def stop_requested() -> int:
        nonlocal due, heard
        now = time.monotonic()
        if not heard and now >= due:
            due = now + _POLL_SECONDS
            is_orphan = parent is not None and not parent.is_alive()
            heard = int(signal.SIGTERM) if is_orphan else look()
        return heard

    return stop_requested


def signum_in(path: Path) -> int:
    """The signal's number in a stop file, SIGTERM's where it has none; 0 where there is no file."""
    try:
        return int(read_bytes(path))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return int(signal.SIGTERM)
