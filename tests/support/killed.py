"""The command line, killed by SIGKILL before it replaces its N-th file: `python killed.py N ARGUMENTS...`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from subquad.cli.main import main


def fatal(replace: Callable[..., Any], left: int) -> Callable[..., Any]:
    """`os.replace`, which kills this process instead of its N-th call. 0: it never does; the calls are counted."""
    calls = 0

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == left:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(*arguments, **more)

    return counted


if __name__ == "__main__":
    os.replace = fatal(os.replace, int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
