"""Where each number comes from: run directory, experiment, source revision, versions, plugin distributions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subquad.report.run import ReportedRun
from subquad.report.text import DASH, duration, printable
from subquad.runs import EXPERIMENT


@dataclass(frozen=True)
class Provenance:
    """One run's origin.

    Attributes:
        run: its directory, relative to what was asked for.
        title: data set, mixer, seed and what became of it.
        facts: (name, value) pairs.
    """

    run: str
    title: str
    facts: tuple[tuple[str, str], ...]


def provenance_of(run: ReportedRun) -> Provenance:
    """A run's origin, from its own files."""
    title = f"{run.dataset}, {run.label}, {run.protocol}, seed {run.seed}: {run.status}"
    digest = hashlib.sha256((run.folder / EXPERIMENT).read_bytes()).hexdigest()
    facts = {"experiment.yaml sha256": digest, **_run_facts(run), **_environment_facts(run.environment)}
    return Provenance(run.name, title, tuple((name, printable(value)) for name, value in facts.items() if value))


def _run_facts(run: ReportedRun) -> dict[str, str]:
    result = run.result
    if result is None:
        return {}
    return {
        "experiment hash": result.experiment or "",
        "reason": result.reason or "",
        "steps": f"{result.steps} in {duration(result.seconds)}" if result.steps is not None else "",
        "attempts": str(result.attempts or ""),
        "skipped steps": str(result.skipped_steps or ""),
        "workers": str(result.workers or ""),
        "tested": f"{result.test.checkpoint} checkpoint, {result.test.samples} samples" if result.test else "",
    }


def _environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    packages = sorted(_mapping(environment.get("packages")).items())
    return {
        "git commit": _revision(environment.get("git")),
        "python": str(environment.get("python") or ""),
        "platform": str(environment.get("platform") or ""),
        "GPUs": ", ".join(map(str, _list(environment.get("gpus")))),
        "packages": ", ".join(f"{name} {found}" for name, found in packages),
        "plugins": "; ".join(_plugin(one) for one in _list(environment.get("plugins"))),
    }


def _revision(git: Any) -> str:
    facts = _mapping(git)
    if not facts.get("commit"):
        return DASH
    return f"{facts['commit']}{' with uncommitted changes' if facts.get('dirty') else ''}"


def _plugin(facts: Any) -> str:
    """`mixer running-mean from acme-mixers 1.2 (sha256 0f3c52d1a9e4)`."""
    known = _mapping(facts)
    origin = f"{known.get('distribution') or 'a file'} {known.get('version') or ''}".strip()
    marks = ["editable"] if known.get("editable") else []
    marks += [f"sha256 {str(known['sha256'])[:12]}"] if known.get("sha256") else []
    return f"{known.get('kind')} {known.get('name')} from {origin}" + (f" ({', '.join(marks)})" if marks else "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
