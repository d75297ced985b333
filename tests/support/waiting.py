"""Waiting for what a process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PAUSE = 0.03
"""Seconds between two looks."""


def until(condition: Callable[[], Any], process: Any = None, seconds: float = 900.0) -> None:
    """Wait until something holds, and leave the processor to what is waited for.

    Args:
        process: a `subprocess.Popen`, or what has its methods, that must not end before.

    Raises:
        AssertionError: the process ended before, or it took too long.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        if process is not None and process.poll() is not None:
            assert condition(), f"ended with {process.returncode}: {process.communicate()}"
            return
        time.sleep(PAUSE)
