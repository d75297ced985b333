"""Starts of a run, one line each, and the environment of each.

They tell a run that fails again and again from one that gets on.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from subquad.engine import checkpoint
from subquad.engine.group import Group
from subquad.engine.revision import revision
from subquad.errors import TrainingFailed
from subquad.experiment import Run
from subquad.records import Place, read_new
from subquad.registry import plugin_facts
from subquad.runs import (
    ATTEMPTS,
    ENVIRONMENT,
    ERROR,
    METRICS,
    RESULT,
    append_line,
    read_bytes,
    read_json,
    read_lines,
    write_json,
)
from subquad.storage import remove

_PACKAGES = ("subquad", "torch", "numpy", "ray", "mlflow", "sktime", "safetensors", "pydantic")


@dataclass(frozen=True)
class Attempt:
    """One start of a run.

    Attributes:
        attempt: 1 for the first start.
        from_step: step it went on from.
        launch: the start of the driver; a restart by hand is another one.
        world_size: number of ranks.
        threads: of torch on each rank. They decide how sums are cut, so the last bits of a loss.
    """

    attempt: int
    from_step: int
    launch: str
    world_size: int
    threads: int


_ATTEMPT = TypeAdapter(Attempt)


@dataclass(frozen=True)
class Start:
    """What the run's log tells of an attempt that begins.

    Attributes:
        attempt: its number.
        again: how it came to begin, where it is not the first one.
        cause: why the one before ended, where the driver started this one by itself.
        notes: what else is to be known of it.
    """

    attempt: int
    again: str
    cause: str
    notes: tuple[str, ...]

    def events(self, step: int) -> list[str]:
        """Lines, on the first rank.

        Args:
            step: where it goes on.
        """
        if not self.again:
            return [*self.notes]
        cause = f": {self.cause}" if self.cause else ""
        return [f"{self.again} at step {step} (attempt {self.attempt}){cause}", *self.notes]


def read(run: Path) -> list[Attempt]:
    """Earlier attempts, oldest first; damaged lines are left out."""
    found = list[Attempt]()
    for line in read_lines(run / ATTEMPTS):
        with suppress(ValueError):
            found.append(_ATTEMPT.validate_python(line))
    return found


def start_attempt(run: Run, group: Group) -> Start:
    """Record this attempt, on the first rank; every rank calls it.

    Raises:
        TrainingFailed: attempts keep failing at one place.
    """
    earlier, newest, step, error, lost = group.of_first(lambda: (read(run.folder), *_begun(run)))
    failures = _failures(earlier, run.launch, step)
    limit = run.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before "
            "reaching a new checkpoint "
            f"(resources.max_failures: {limit}); the newest error: {error}"
        )
    number = max([newest, *(attempt.attempt for attempt in earlier)]) + 1
    now = Attempt(number, step, run.launch, group.world_size, torch.get_num_threads())
    by_itself = bool(earlier) and earlier[-1].launch == run.launch
    again = "started again by itself" if by_itself else "resumed" if number > 1 else ""

    def record() -> list[str]:
        damaged = [
            f"{name} was damaged, and is written again"
            for name in (RESULT, ENVIRONMENT)
            if (run.folder / name).exists() and read_json(run.folder / name) is None
        ]
        for stale in (ERROR, RESULT):
            remove(run.folder / stale)
        about = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        append_line(run.folder / ATTEMPTS, {**asdict(now), **about})
        return [*damaged, *lost, *_rounded(earlier, now), *_record_environment(run, number)]

    return Start(number, again, error if by_itself else "", tuple(group.of_first(record)))


def _begun(run: Run) -> tuple[int, int, str, list[str]]:
    """The newest attempt that records know, the step of the newest checkpoint, the newest error,
    and what to tell of records that are damaged.
    """
    records, place = read_new(run.folder, Place())
    reached = max((record.step for record in records), default=0)
    newest = max((record.attempt for record in records), default=0)
    killed = f"a process was killed after step {reached}, without a message"
    error = _newest_error(run.folder) or killed
    lost = len(place.unreadable)
    words = f"{METRICS} was damaged: {lost} of {len(records) + lost} records of earlier attempts"
    saved = max(checkpoint.finished_steps(run.files.checkpoints), default=0)
    return newest, saved, error, [f"{words} are lost"] if lost else []


def _rounded(earlier: Sequence[Attempt], now: Attempt) -> list[str]:
    """A line where an attempt cannot give the last bits that the one whose checkpoint it goes on
    from would have.
    """
    got_on = [
        attempt
        for attempt, after in pairwise([*earlier, now])
        if after.from_step > attempt.from_step
    ]
    if not got_on:
        return []
    before = got_on[-1]
    changed: list[str] = []
    if now.world_size != before.world_size:
        changed.append(f"resources.workers {now.world_size} instead of {before.world_size}")
    if now.threads != before.threads:
        changed.append(
            f"{now.threads} threads of each worker (resources.cpus_per_worker) "
            f"instead of {before.threads}"
        )
    if not changed:
        return []
    return [f"goes on with {' and '.join(changed)}: equal up to rounding, not bit for bit"]


def _failures(earlier: list[Attempt], launch: str, from_step: int) -> int:
    """How many attempts in a row of this launch already started from the same step."""
    alike = takewhile(
        lambda attempt: (attempt.launch, attempt.from_step) == (launch, from_step),
        reversed(earlier),
    )
    return sum(1 for _ in alike)


def _newest_error(folder: Path) -> str:
    try:
        return read_bytes(folder / ERROR).decode().strip().splitlines()[-1]
    except (OSError, ValueError, IndexError):
        return ""


def _record_environment(run: Run, attempt: int) -> list[str]:
    """Write environment.json at a run's first start. Where a later one differs, write its own
    and tell what changed.
    """
    now = _environment(run)
    before = read_json(run.folder / ENVIRONMENT)
    if before is None:
        write_json(run.folder / ENVIRONMENT, now)
        return []
    changed = [
        key for key in ("python", "packages", "plugins", "gpus") if before.get(key) != now[key]
    ]
    if not changed:
        return []
    name = f"environment-{attempt}.json"
    write_json(run.folder / name, now)
    return [f"resumed in another environment: {', '.join(changed)} changed, see {name}"]


def _environment(run: Run) -> dict[str, Any]:
    """Where the run's numbers come from, as JSON values. Holds no environment variables, so no
    secrets.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := installed_version(name))},
        "plugins": list(map(plugin_facts, run.plugins)),
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "git": revision(),
    }


def installed_version(name: str) -> str:
    """A distribution's version; "" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
