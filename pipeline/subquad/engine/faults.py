"""Named points where a test may break the run: SUBQUAD_FAULT="kill@step:17", several separated by commas.

Actions: kill (SIGKILL to this process), raise (RuntimeError), nan (the step's loss becomes NaN). The number is which
passing of the point fires, counted in this process. With `:PATH` behind it the fault fires once over all processes:
the first one makes the file PATH. Off, a point costs one `if`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_SPEC = os.environ.get("SUBQUAD_FAULT", "")
_PASSED: Counter[str] = Counter()


def _parse(spec: str) -> list[tuple[str, str, int, str]]:
    found = []
    for item in filter(None, spec.split(",")):
        action, _, rest = item.partition("@")
        point, _, rest = rest.partition(":")
        number, _, marker = rest.partition(":")
        found.append((action, point, int(number), marker))
    return found


_FAULTS = _parse(_SPEC)


def point(name: str) -> bool:
    """Pass a named point. Returns True where a `nan` fault fires here."""
    return bool(_FAULTS) and _pass(name)


def _pass(name: str) -> bool:
    _PASSED[name] += 1
    fired = False
    for action, at, number, marker in _FAULTS:
        if at == name and number == _PASSED[name] and _first(marker):
            fired |= _act(action, name)
    return fired


def _first(marker: str) -> bool:
    if not marker:
        return True
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _act(action: str, name: str) -> bool:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise RuntimeError(f"injected fault at {name}")
    return action == "nan"
