"""The report as plain values, for JSON and CSV. Metrics are as in the runs' files: fractions,
not rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from pydantic_core import to_jsonable_python

from subquad.reports.compare import Comparison
from subquad.reports.curves import Curve
from subquad.reports.means import Ranking
from subquad.reports.published import Beside
from subquad.reports.reading import Report
from subquad.reports.rows import Reference, TableRow
from subquad.reports.text import Values

_FORMAT = 3
_MEASURED = ("seconds", "seconds_per_step", "tokens_per_second", "peak_memory_bytes")
"""What finished runs cost, as their results call it."""


def report_values(report: Report) -> Values:
    """Everything in the report, for `--json` and notebooks."""
    return to_jsonable_python(
        {
            "format": _FORMAT,
            **_picked(report, "baseline", "headlines"),
            "metrics": {
                name: row.first.shown(name)
                for row in report.rows
                for name in (row.metric, *row.besides)
            },
            "rows": [_row(row, report.beside[row]) for row in report.rows],
            "references": list(map(_reference, report.references)),
            "means": [
                {
                    "kind": "reference mean" if mean.is_reference else "mean",
                    **_picked(mean, "protocol", "metric", "datasets", "score", mixer="name"),
                }
                for mean in report.means
            ],
            "examples": report.examples,
            "rankings": list(map(_ranking, report.rankings)),
            "curves": list(map(_curve, report.curves)),
            "comparisons": list(map(_comparison, report.comparisons)),
        },
        inf_nan_mode="null",
    )


def _picked(thing: Any, *names: str, **others: str) -> Values:
    """Attributes by their names; `others` have another name there, `first.name`."""
    others |= dict(zip(names, names, strict=True))
    return {name: attrgetter(path)(thing) for name, path in others.items()}


def _row(row: TableRow, beside: Iterable[Beside]) -> Values:
    tuning = row.tuning
    return {
        "kind": "mixer",
        **_picked(row, dataset="dataset", mixer="label"),
        "setting": dict(row.setting),
        **_picked(row, "protocol", "protocol_label"),
        "status": row.status(),
        **_picked(row, "metric", "seeds", "samples", "score", "last_score", "besides"),
        **{name: row.measured(name) for name in _MEASURED},
        "parameters": row.counted[0].parameters if row.counted else None,
        "flops_per_step": row.counted[0].flops_per_step if row.counted else None,
        **_picked(row, "best_epochs", "notes"),
        **({"tuning": {**asdict(tuning), "words": tuning.words}} if tuning else {}),
        "runs": [_picked(run, "name", "seed", "status", "reason", "faults") for run in row.runs],
        "published": _beside(beside),
    }


def _reference(reference: Reference) -> Values:
    ends = zip(("low", "high"), reference.interval(reference.metric) or (), strict=False)
    return {
        "kind": "reference",
        **_picked(reference, mixer="name", reference="key"),
        "score": {"mean": reference.value, **dict(ends)},
        **_picked(reference, "dataset", "protocol", "metric", "samples"),
        "runs": [{"name": run.name} for run in reference.runs],
    }


def _ranking(ranking: Ranking) -> Values:
    pairs = [
        {
            **_picked(pair, first="first.name", second="second.name"),
            **_picked(pair, "difference", "wins", "chance", "adjusted", "verdict", "unequal"),
        }
        for pair in ranking.pairs
    ]
    return {
        **_picked(ranking.means[0], "protocol", "metric", "datasets"),
        **_picked(ranking, "mixers", "ranks", "friedman", "critical", "sentence"),
        **_picked(ranking, "least_p", "least_p_holm"),
        "pairs": pairs,
    }


def _curve(curve: Curve) -> Values:
    about = {
        **_picked(curve.rows[0], dataset="dataset", mixer="label"),
        **_picked(curve.rows[0], "protocol", "metric"),
        "key": curve.key,
        "at": dict(curve.at),
    }
    values = [
        {
            "kind": "value",
            **about,
            "value": row.runs[0].leaves.get(curve.key),
            **_picked(row, "seeds", "validation", "score", base="is_base"),
            "published": _beside(curve.beside[row]),
        }
        for row in curve.rows
    ]
    return {
        **about,
        "sentence": curve.sentence,
        "values": values,
        "comparisons": list(map(_comparison, curve.comparisons)),
    }


def _beside(found: Iterable[Beside]) -> list[Values]:
    return [
        {
            **beside.published.model_dump(mode="json"),
            "comparable": not beside.reasons,
            "reasons": beside.reasons,
        }
        for beside in found
    ]


def _comparison(pair: Comparison) -> Values:
    return {
        **_picked(pair, dataset="first.dataset", protocol="first.protocol"),
        **_picked(pair, first="first.name", second="second.name"),
        "estimate": pair.estimate,
        **_picked(pair, "seeds", "basis", "verdict", "notes", p_holm="adjusted"),
    }
