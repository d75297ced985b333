"""Where a run's numbers come from: versions, plugins, hardware, source revision."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from subquad.experiment import Run
from subquad.registry import plugin_facts
from subquad.runs import ENVIRONMENT, read_json, write_json

_PACKAGES = ("subquad", "torch", "numpy", "ray", "mlflow", "sktime", "safetensors", "pydantic")


def record(run: Run, attempt: int) -> list[str]:
    """Write environment.json at a run's first start. Where a later one differs, write its own and tell what changed."""
    now = _describe(run)
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


def _describe(run: Run) -> dict[str, Any]:
    """The environment of this process, as JSON values. Holds no environment variables, so no secrets."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "plugins": [plugin_facts(one) for one in run.plugins],
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "git": _revision(Path.cwd()),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _revision(folder: Path) -> dict[str, Any] | None:
    """Commit of the working directory and whether it has uncommitted changes; None outside a repository."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "dirty": bool(git("status", "--porcelain"))}
