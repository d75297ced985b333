"""A search's summary in words: the table of its subjects, and lines about each. Terminal and files show the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subquad.report.table import Table
from subquad.report.text import DASH, clean, number, unit

OPEN = ("waiting", "running")
"""Of trials that are to come, run right now, or were interrupted: a folder cannot tell which."""
TOLD = ("finished", "pruned", "failed", "infeasible")
BEST, WINNER = "best validation", "winning point"
NOTHING = "nothing was searched"


def table(summary: Mapping[str, Any]) -> Table:
    """A row for each subject: how it was searched, its trials by state, what they consumed, and the best one."""
    subjects, settings = summary["subjects"], summary["settings"]
    states = [*(("unfinished",) if any(unended(one) for one in subjects) else ())]
    headers = ("subject", "searcher", "scheduler", "dims", *TOLD, *states, "steps", "FLOPs", "seconds")
    lines = [
        (
            *(clean(one["label"]), settings["searcher"], settings["scheduler"], str(one["dimensions"])),
            *(str(one["trials"][state]) for state in TOLD),
            *(str(unended(one)) for _ in states),
            *(f"{one['steps']:,}", f"{one['flops']:.4g}" if one["flops"] else DASH, f"{one['seconds']:.1f}"),
            *(_value(one), _winner(one)),
        )
        for one in subjects
    ]
    numeric = frozenset(range(3, len(headers) + 1))
    return Table((*headers, BEST, WINNER), tuple(lines), numeric)


def _value(one: Mapping[str, Any]) -> str:
    if not one["best"]:
        return DASH
    return f"{clean(one['metric'])} {number(one['best']['value'], one['metric'])} {unit(one['metric'])}".rstrip()


def _winner(one: Mapping[str, Any]) -> str:
    if not one["best"]:
        return DASH
    return f"trial {one['best']['number']}: {point_text(one['best']['point']) or NOTHING}"


def unended(subject: Mapping[str, Any]) -> int:
    """Trials of a subject that have begun and not ended."""
    return sum(subject["trials"][state] for state in OPEN)


def unfinished(summary: Mapping[str, Any]) -> list[str]:
    """Labels of the subjects of which trials are to come, or to go on with."""
    return [one["label"] for one in summary["subjects"] if not one["over"] or unended(one)]


def point_text(point: Mapping[str, Any]) -> str:
    return clean(
        " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in point.items())
    )


def best_line(subject: Mapping[str, Any]) -> list[str]:
    """The best trial of a subject."""
    best = subject["best"]
    if not best:
        return []
    where = f"trial {best['number']}, validation {subject['metric']} {best['value']:.4g} at step {best['step']}"
    return [f"best {where}: {point_text(best['point']) or NOTHING}"]


def other_lines(subject: Mapping[str, Any]) -> list[str]:
    """The front of two objectives, why trials did not run, and why there were no more."""
    lines = [*_front(subject), *subject["reasons"]]
    return [clean(line) for line in lines + ([subject["over"]] if subject["over"] not in ("", "budget used") else [])]


def _front(subject: Mapping[str, Any]) -> list[str]:
    """Where there are two objectives, the trials that no other one beats in both."""
    if subject["front"] is None:
        return []
    unit = {"seconds": "s", "flops": "FLOPs"}[subject["cost"]]
    told = [
        f"front: trial {one['number']}, {subject['metric']} {one['value']:.4g} for {one['cost']:.4g} {unit}: "
        f"{point_text(one['point']) or NOTHING}"
        for one in subject["front"]
    ]
    return told or ["front: no finished trial has both a value and a cost"]
