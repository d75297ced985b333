"""Starts of a run, one line each, and the environment of each.

They tell a run that fails again and again from one that gets on.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Iterable, Sequence
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
from subquad.registry import plugin_facts
from subquad.runs import (
    ATTEMPTS,
    ENVIRONMENT,
    ERROR,
    RESULT,
    Place,
    append_line,
    parse_object,
    read_bytes,
    read_json,
    read_new,
    touching,
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


def read(run: Path) -> list[Attempt]:
    """Earlier attempts, oldest first; damaged lines are left out."""
    path, found = run / ATTEMPTS, list[Attempt]()
    with touching(path):
        lines = read_bytes(path).splitlines() if path.exists() else []
    for line in lines:
        with suppress(ValueError):
            found.append(_ATTEMPT.validate_python(parse_object(line)))
    return found


def count(runs: Iterable[Run]) -> int:
    """Starts of all of them together."""
    return sum(len(read(run.folder)) for run in runs)


def start_attempt(run: Run, group: Group) -> tuple[int, list[str]]:
    """Record this attempt, on the first rank; every rank calls it.

    Returns:
        the attempt's number, and what the run's log should tell of it.

    Raises:
        TrainingFailed: attempts keep failing at one place.
    """
    own = group.together(lambda: (read(run.folder), *_begun(run)))
    earlier, newest, step, error = group.gather(own)[0]
    failures, limit = _failures(earlier, run.launch, step), run.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before reaching a new checkpoint "
            f"(resources.max_failures: {limit}); the newest error: {error}"
        )
    number = max([newest, *(one.attempt for one in earlier)]) + 1
    attempt = Attempt(number, step, run.launch, group.world_size, torch.get_num_threads())

    def record() -> list[str]:
        if not group.first:
            return []
        damaged = [name for name in (RESULT, ENVIRONMENT) if _is_damaged(run.folder / name)]
        for stale in (ERROR, RESULT):
            remove(run.folder / stale)
        about = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        append_line(run.folder / ATTEMPTS, {**asdict(attempt), **about})
        told = [f"{name} was damaged, and is written again" for name in damaged]
        return [*told, *_rounded(earlier, attempt), *_record_environment(run, attempt.attempt)]

    return attempt.attempt, group.together(record)


def _begun(run: Run) -> tuple[int, int, str]:
    """The newest attempt that metrics.jsonl knows, the step of the newest checkpoint, and the newest error."""
    records, place = read_new(run.folder, Place())
    reached = max((one.step for one in records), default=0)
    error = _newest_error(run.folder) or f"none was written: a process was killed after step {reached}"
    return place.attempt, max(checkpoint.finished_steps(run.checkpoints), default=0), error


def _rounded(earlier: Sequence[Attempt], now: Attempt) -> list[str]:
    """A line where an attempt cannot give the last bits that the one whose checkpoint it goes on from would have."""
    got_on = [one for one, after in pairwise([*earlier, now]) if after.from_step > one.from_step]
    if not got_on:
        return []
    before, changed = got_on[-1], list[str]()
    if now.world_size != before.world_size:
        changed.append(f"resources.workers {now.world_size} instead of {before.world_size}")
    if now.threads != before.threads:
        changed.append(f"{now.threads} threads of each worker (resources.cpus_per_worker) instead of {before.threads}")
    return [f"goes on with {' and '.join(changed)}: equal up to rounding, not bit for bit"] if changed else []


def _is_damaged(path: Path) -> bool:
    return path.exists() and read_json(path) is None


def _failures(earlier: list[Attempt], launch: str, from_step: int) -> int:
    """How many attempts in a row of this launch already started from the same step."""
    alike = takewhile(lambda one: (one.launch, one.from_step) == (launch, from_step), reversed(earlier))
    return sum(1 for _ in alike)


def _newest_error(folder: Path) -> str:
    try:
        return read_bytes(folder / ERROR).decode().strip().splitlines()[-1]
    except (OSError, ValueError, IndexError):
        return ""


def _record_environment(run: Run, attempt: int) -> list[str]:
    """Write environment.json at a run's first start. Where a later one differs, write its own and tell what changed."""
    now = _environment(run)
    before = read_json(run.folder / ENVIRONMENT)
    if before is None:
        write_json(run.folder / ENVIRONMENT, now)
        return []
    changed = [key for key in ("python", "packages", "plugins", "gpus") if before.get(key) != now[key]]
    if not changed:
        return []
    name = f"environment-{attempt}.json"
    write_json(run.folder / name, now)
    return [f"resumed in another environment: {', '.join(changed)} changed, see {name}"]


def _environment(run: Run) -> dict[str, Any]:
    """Where the run's numbers come from, as JSON values. Holds no environment variables, so no secrets."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "plugins": [plugin_facts(one) for one in run.plugins],
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "git": revision(),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
