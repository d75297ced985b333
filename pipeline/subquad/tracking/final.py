"""The final study of a search, and its runs, say which search they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from subquad.runs import SEARCH
from subquad.tracking.contracts import Plan, TrackedRun


def search_name(search: Path) -> str:
    """As below `runs/`: what `subquad tune --resume` is given."""
    return f"{search.parent.name}/{search.name}"


def search_tags(study: Path | None) -> dict[str, str]:
    """What names the search that a study is the last part of."""
    return {"subquad.search": search_name(study.parent)} if study and (study.parent / SEARCH).exists() else {}


def with_search(plan: Plan) -> tuple[TrackedRun, ...]:
    """The runs of a plan; those of a search's final study say so."""
    if not (tags := search_tags(plan.study)):
        return plan.runs
    return tuple(replace(run, tags={**run.tags, "subquad.kind": "final", **tags}) for run in plan.runs)
