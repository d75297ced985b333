"""Starts of a run, one line each; they tell a run that fails again and again from one that gets on."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from subquad.runs import ATTEMPTS


@dataclass(frozen=True)
class Attempt:
    """One start of a run.

    Attributes:
        attempt: 1 for the first start.
        from_step: step it went on from.
        launch: the start of the driver; a restart by hand is another one.
        world_size: number of ranks.
    """

    attempt: int
    from_step: int
    launch: str
    world_size: int


def read(run: Path) -> list[Attempt]:
    """Earlier attempts, oldest first; torn lines are left out."""
    found = []
    try:
        lines = (run / ATTEMPTS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            data = json.loads(line)
            found.append(Attempt(**{name: data[name] for name in Attempt.__dataclass_fields__}))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def append(run: Path, attempt: Attempt) -> None:
    """Record a start."""
    data = {**asdict(attempt), "pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
    with (run / ATTEMPTS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(data, sort_keys=True) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def failures_without_progress(earlier: list[Attempt], launch: str, from_step: int) -> int:
    """How many attempts in a row of this launch already started from the same step."""
    count = 0
    for one in reversed(earlier):
        if one.launch != launch or one.from_step != from_step:
            break
        count += 1
    return count
