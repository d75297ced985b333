"""Starts of a run, one line each, and the environment of each.

They tell a run that fails again and again from one that gets on.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from subquad.engine import checkpoint
from subquad.engine.group import Group
from subquad.errors import TrainingFailed
from subquad.experiment import Run
from subquad.registry import plugin_facts
from subquad.runs import ATTEMPTS, CHECKPOINTS, ENVIRONMENT, ERROR, RESULT, read_json, write_json

_PACKAGES = ("subquad", "torch", "numpy", "ray", "mlflow", "sktime", "safetensors", "pydantic")


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
    path, found = run / ATTEMPTS, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, KeyError, TypeError):
            data = json.loads(line)
            found.append(Attempt(**{name: data[name] for name in Attempt.__dataclass_fields__}))
    return found


def _append(run: Path, attempt: Attempt) -> None:
    """Record a start."""
    data = {**asdict(attempt), "pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
    with (run / ATTEMPTS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(data, sort_keys=True) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def start_attempt(run: Run, group: Group) -> tuple[int, list[str]]:
    """Record this attempt, on the first rank; every rank calls it.

    Returns:
        the attempt's number, and what the run's log should tell of it.

    Raises:
        TrainingFailed: attempts keep failing at one place.
    """
    own = read(run.folder), checkpoint.newest_step(run.folder / CHECKPOINTS), _newest_error(run.folder)
    earlier, step, error = group.gather(own)[0]
    failures, limit = _failures(earlier, run.launch, step), run.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before reaching a new checkpoint "
            f"(resources.max_failures: {limit}); the newest error: {error}"
        )
    attempt = Attempt(len(earlier) + 1, step, run.launch, group.world_size)

    def record() -> list[str]:
        if not group.first:
            return []
        for stale in (ERROR, RESULT):
            (run.folder / stale).unlink(missing_ok=True)
        _append(run.folder, attempt)
        return _record_environment(run, attempt.attempt)

    return attempt.attempt, group.together(record)


def _failures(earlier: list[Attempt], launch: str, from_step: int) -> int:
    """How many attempts in a row of this launch already started from the same step."""
    alike = takewhile(lambda one: (one.launch, one.from_step) == (launch, from_step), reversed(earlier))
    return sum(1 for _ in alike)


def _newest_error(folder: Path) -> str:
    try:
        return (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()[-1]
    except (OSError, IndexError):
        return "none was written: the process was killed"


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
    commit = _git("rev-parse", "HEAD")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "plugins": [plugin_facts(one) for one in run.plugins],
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "git": None if commit is None else {"commit": commit, "dirty": bool(_git("status", "--porcelain"))},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str | None:
    """What git says of the working directory; None outside a repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
