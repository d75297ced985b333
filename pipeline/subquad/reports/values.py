"""The report as plain values, for JSON and CSV. Metrics are as in the runs' files: fractions,
not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from typing import Any

from subquad.reports.model import Comparison, Curve, Mean, Reference, Report, TableLine, TableRow
from subquad.reports.published import Beside
from subquad.reports.text import MEASURED, Values

_FORMAT = 3
_RANKING = (
    *("protocol", "metric", "datasets", "mixers", "ranks", "friedman", "critical", "sentence"),
    *("least_p", "least_p_holm", "pairs"),
)


def report_values(report: Report) -> Values:
    """Everything in the report, for `--json` and notebooks."""
    return _plain(
        {
            "format": _FORMAT,
            "baseline": report.baseline,
            "headlines": report.headlines,
            "metrics": {
                name: row.first.shown(name)
                for row in report.rows
                for name in (row.metric, *row.besides)
            },
            "rows": [_row(row, report.beside[row]) for row in report.rows],
            "references": list(map(_reference, report.references)),
            "means": list(map(_mean, report.means)),
            "examples": report.examples,
            "rankings": [_picked(ranking, *_RANKING) for ranking in report.rankings],
            "curves": list(map(_curve, report.curves)),
            "comparisons": list(map(_comparison, report.comparisons)),
        }
    )


def _mean(mean: Mean) -> Values:
    return {
        "kind": "reference mean" if mean.is_reference else "mean",
        "mixer": mean.name,
        **_picked(mean.first, "protocol", "metric"),
        **_picked(mean, "datasets", "score"),
    }


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return value


def _picked(thing: Any, *names: str) -> Values:
    return {name: getattr(thing, name) for name in names}


def _about(line: TableLine) -> Values:
    return {"dataset": line.dataset, "mixer": line.label}


def _row(row: TableRow, beside: Iterable[Beside]) -> Values:
    tuning = row.tuning
    return {
        "kind": "mixer",
        **_about(row),
        "setting": dict(row.setting),
        **_picked(row, "protocol", "protocol_label"),
        "status": row.status(),
        **_picked(row, "metric", "seeds", "samples", "score", "last_score", "besides"),
        **{name: row.measured(name) for name in MEASURED},
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
        "mixer": reference.name,
        "reference": reference.key,
        "score": {"mean": reference.value, **dict(ends)},
        **_picked(reference, "dataset", "protocol", "metric", "samples"),
        "runs": [{"name": run.name} for run in reference.runs],
    }


def _curve(curve: Curve) -> Values:
    about = {
        **_about(curve.rows[0]),
        **_picked(curve.rows[0], "protocol", "metric"),
        "key": curve.key,
        "at": dict(curve.at),
    }
    values = [
        {
            "kind": "value",
            **about,
            "value": row.runs[0].leaves.get(curve.key),
            "base": row.is_base,
            **_picked(row, "seeds", "validation", "score"),
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
    estimate = None
    if pair.estimate:
        estimate = {
            name: value if math.isfinite(value) else None
            for name, value in asdict(pair.estimate).items()
        }
    return {
        "dataset": pair.first.dataset,
        "protocol": pair.first.protocol,
        "first": pair.first.name,
        "second": pair.second.name,
        "estimate": estimate,
        "p_holm": pair.adjusted,
        **_picked(pair, "seeds", "basis", "verdict", "notes"),
    }
