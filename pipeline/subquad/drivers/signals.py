"""Ctrl-C and SIGTERM: the first asks the run to save and stop, the second stops at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from subquad.runs import write_text

_POLL_SECONDS = 0.2
Signum = Callable[[], int]
"""Gives the number of the signal that asks to stop, 0 where none does."""


@contextmanager
def listening(stop: Path | None = None) -> Iterator[Signum]:
    """Catch SIGINT and SIGTERM in the main thread while the block runs; yields what gives the first one's number.

    Args:
        stop: file that the first signal's number is written to, for ranks in other processes.
    """
    first = 0

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal first
        if first:
            raise KeyboardInterrupt
        first = signum
        if stop is not None:
            write_text(stop, str(signum))

    if stop is not None:
        stop.unlink(missing_ok=True)
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: first
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_file_watch(path: Path, parent: int | None = None) -> Signum:
    """For a rank in another process: what gives the signal number written to a stop file.

    The file is looked at five times a second at most, so that a call costs a clock reading.

    Args:
        parent: process id of the driver on this machine; when it is gone, that counts as SIGTERM.
    """
    due, seen = 0.0, 0

    def asked_to_stop() -> int:
        nonlocal due, seen
        now = time.monotonic()
        if seen or now < due:
            return seen
        due = now + _POLL_SECONDS
        if parent is not None and os.getppid() != parent:
            seen = int(signal.SIGTERM)
        elif path.exists():
            seen = int(path.read_text(encoding="utf-8").strip() or signal.SIGTERM)
        return seen

    return asked_to_stop
