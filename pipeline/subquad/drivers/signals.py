"""Ctrl-C and SIGTERM: the first asks the run to save and stop, the second stops at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.2


@dataclass
class Received:
    """Signals received so far.

    Attributes:
        signum: the first one's number, 0 before.
        count: how many.
    """

    signum: int = 0
    count: int = 0


@contextmanager
def listening(*, on_first: Callable[[int], None] = lambda signum: None) -> Iterator[Received]:
    """Catch SIGINT and SIGTERM in the main thread while the block runs.

    Args:
        on_first: called in the handler with the first signal's number.
    """
    received = Received()

    def handle(signum: int, frame: FrameType | None) -> None:
        received.count += 1
        if received.count > 1:
            raise KeyboardInterrupt
        received.signum = signum
        on_first(signum)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_file_watch(path: Path, parent: int | None = None) -> Callable[[], int]:
    """For a rank in another process: a function that gives the signal number written to a stop file, else 0.

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
        due = now + POLL_SECONDS
        if parent is not None and os.getppid() != parent:
            seen = int(signal.SIGTERM)
        elif path.exists():
            seen = int(path.read_text(encoding="utf-8").strip() or signal.SIGTERM)
        return seen

    return asked_to_stop
