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
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from subquad.engine import checkpoint
from subquad.engine.group import Group
from subquad.engine.revision import revision
from subquad.errors import TrainingFailed
from subquad.experiment import Run
from subquad.record.files import append_line, read_bytes, read_json, read_lines, write_json
from subquad.record.metrics import Place, read_new
from subquad.record.names import ATTEMPTS, ENVIRONMENT, ERROR, INPUTS, METRICS, RESULT
from subquad.record.storage import remove
from subquad.registry import plugin_facts

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
            return list(self.notes)
        line = f"{self.again} at step {step} (attempt {self.attempt})"
        if self.cause:
            line += f": {self.cause}"
        return [line, *self.notes]


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
    return group.of_first(_started, run, group.world_size)


def _started(run: Run, world_size: int) -> Start:
    earlier = read(run.folder)
    records, place = read_new(run.folder, Place())
    step = max(checkpoint.finished_steps(run.files.checkpoints), default=0)
    error = _newest_error(run.folder)
    if not error:
        reached = max((record.step for record in records), default=0)
        error = f"a process was killed after step {reached}, without a message"
    failures = _failures(earlier, run.launch, step)
    limit = run.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before reaching a new "
            f"checkpoint (resources.max_failures: {limit}); the newest error: {error}"
        )
    number = max([entry.attempt for entry in (*earlier, *records)], default=0) + 1
    now = Attempt(number, step, run.launch, world_size, torch.get_num_threads())
    notes = _recorded(run, now)
    lost = len(place.unreadable)
    if lost:
        words = f"{lost} of {len(records) + lost} records of earlier attempts are lost"
        notes.append(f"{METRICS} was damaged: {words}")
    notes += _rounded(earlier, now)
    notes += _record_environment(run, number)
    if earlier and earlier[-1].launch == run.launch:
        return Start(number, "started again by itself", error, tuple(notes))
    return Start(number, "resumed" if number > 1 else "", "", tuple(notes))


def _recorded(run: Run, now: Attempt) -> list[str]:
    """Write an attempt down, and remove what the one before it ended with; tells of damaged
    files.
    """
    notes = []
    for name in (RESULT, ENVIRONMENT, INPUTS):
        path = run.folder / name
        if path.exists() and read_json(path) is None:
            notes.append(f"{name} was damaged, and is written again")
    remove(run.folder / ERROR)
    remove(run.folder / RESULT)
    line = asdict(now)
    line["pid"] = os.getpid()
    line["host"] = socket.gethostname()
    line["time"] = time.time()
    append_line(run.folder / ATTEMPTS, line)
    return notes


def _rounded(earlier: Sequence[Attempt], now: Attempt) -> list[str]:
    """A line where an attempt cannot give the last bits that the one whose checkpoint it goes on
    from would have.
    """
    before = None
    for attempt, after in pairwise([*earlier, now]):
        if after.from_step > attempt.from_step:
            before = attempt
    if before is None:
        return []
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
    count = 0
    for attempt in reversed(earlier):
        if attempt.launch != launch or attempt.from_step != from_step:
            break
        count += 1
    return count


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
    keys = ("python", "packages", "plugins", "gpus")
    changed = [key for key in keys if before.get(key) != now[key]]
    if not changed:
        return []
    name = f"environment-{attempt}.json"
    write_json(run.folder / name, now)
    return [f"resumed in another environment: {', '.join(changed)} changed, see {name}"]


def _environment(run: Run) -> dict[str, Any]:
    """Where the run's numbers come from, as JSON values. Holds no environment variables, so no
    secrets.
    """
    versions = {name: installed_version(name) for name in _PACKAGES}
    gpus = range(torch.cuda.device_count())
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version for name, version in versions.items() if version},
        "plugins": list(map(plugin_facts, run.plugins)),
        "cpus": os.cpu_count(),
        "gpus": list(map(torch.cuda.get_device_name, gpus)),
        "git": revision(),
    }


def installed_version(name: str) -> str:
    """A distribution's version; "" where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
