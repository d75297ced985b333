"""Named points where a test may break the run: SUBQUAD_FAULT="kill@step:17", several separated by
commas.

Actions: kill (SIGKILL to this process), raise (RuntimeError), nan (the step's loss becomes NaN).
The number is which passing of the point fires, counted in this process. With `:PATH` behind it the
fault fires once over all processes: the first one makes the file PATH. Off, a point costs one `if`.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from functools import cache

_PASSED: Counter[str] = Counter()


@cache
def _faults() -> list[tuple[str, str, int, str]]:
    """Action, point, number and marker of each; read when the first point is passed, so that a
    forked process reads its own environment.
    """
    found = re.findall(r"([^,@]+)@([^,:]+):(\d+):?([^,]*)", os.environ.get("SUBQUAD_FAULT", ""))
    return [(action, point, int(number), marker) for action, point, number, marker in found]


def point(name: str) -> bool:
    """Pass a named point. Returns True where a `nan` fault fires here."""
    return bool(_faults()) and _pass(name)


def _pass(name: str) -> bool:
    _PASSED[name] += 1
    fired = False
    for action, at, number, marker in _faults():
        if at == name and number == _PASSED[name] and (not marker or _is_first(marker)):
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if action == "raise":
                raise RuntimeError(f"injected fault at {name}")
            fired = True
    return fired


def _is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
