"""The command line, killed by SIGKILL before it replaces its N-th file: `N ARGUMENTS...`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from subquad.cli.main import main as command_line


def fatal(replace: Callable[..., Any], left: int) -> Callable[..., Any]:
    """`os.replace`, which kills this process instead of its N-th call. 0: it never does; the
    calls are counted.
    """
    calls = 0

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == left:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(*arguments, **more)

    return counted


def main(arguments: Sequence[str]) -> int:
    os.replace = fatal(os.replace, int(arguments[0]))
    return command_line(list(arguments[1:]))
