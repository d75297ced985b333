"""How a run, or a study, ended: what MLflow is told at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subquad.runs import ENVIRONMENT, METRICS, RESULT, is_study, read_json, read_result, runs_below
from subquad.tracking.points import Point, final_points
from subquad.tracking.secrets import mask

STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
"""A trial that was ended early did what it was meant to do; the tag `subquad.status` tells it from others."""


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        status: MLflow's FINISHED, FAILED or KILLED.
        ended: seconds since 1970.
        digest: tells this end from another one of the same run.
        tags: last tags.
        points: final metrics.
    """

    status: str
    ended: float
    digest: str
    tags: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[Point] = ()


def run_outcome(run: Path, *, final: bool) -> Outcome | None:
    """A run's end from its result.json; without one it goes on, or was killed where this look is the final one."""
    result = read_result(run)
    if result is None:
        return Outcome("KILLED", _last_change(run), "killed", {"subquad.status": "killed"}) if final else None
    ended = (run / RESULT).stat().st_mtime
    digest = hashlib.sha256((run / RESULT).read_bytes()).hexdigest()[:16]
    status = STATUS.get(str(result.get("status")), "KILLED")
    tags = {**environment_tags(run), **_tags(result)}
    return Outcome(status, ended, digest, tags, final_points(result, int(ended * 1000)))


def study_outcome(study: Path, runs: Sequence[Path], *, final: bool) -> Outcome | None:
    """A study's end from its cells: None while one goes on, unless this look is the final one."""
    cells = sorted({*runs, *below(study)})
    ends = [run_outcome(cell, final=final) for cell in cells or [study]]
    if not all(ends):
        return None
    known = [end for end in ends if end]
    statuses = {end.status for end in known}
    status = next((name for name in ("KILLED", "FAILED") if name in statuses), "FINISHED")
    digest = hashlib.sha256(" ".join(end.digest for end in known).encode()).hexdigest()[:16]
    ended = max((end.ended for end in known), default=study.stat().st_mtime)
    return Outcome(status, ended, digest, {"subquad.status": status.lower()})


def below(study: Path) -> list[Path]:
    """The cells of a study that have started; none while its file is not written yet."""
    return runs_below(study) if is_study(study) else []


def environment_tags(run: Path) -> dict[str, str]:
    """Commit and plugin distributions, from a run's environment.json."""
    environment = read_json(run / ENVIRONMENT) or {}
    git = environment.get("git") or {}
    tags = {"mlflow.source.git.commit": str(git["commit"]), "git.dirty": str(git.get("dirty"))} if git else {}
    for plugin in environment.get("plugins") or []:
        tags[f"plugin.{plugin.get('kind')}"] = f"{plugin.get('distribution')} {plugin.get('version')}"
    return tags


def _tags(result: Mapping[str, Any]) -> dict[str, str]:
    said = {
        "subquad.status": result.get("status"),
        "subquad.protocol": result.get("protocol"),
        "subquad.protocol_label": result.get("protocol_label"),
        "subquad.reason": result.get("reason"),
    }
    return {name: mask(str(value))[:5000] for name, value in said.items() if value}


def _last_change(run: Path) -> float:
    path = run / METRICS if (run / METRICS).exists() else run
    return path.stat().st_mtime if path.exists() else 0.0
