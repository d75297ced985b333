"""The report as plain values: nested for JSON, a flat record per row of the tables for CSV.

Metrics are as in the runs' files: fractions, not percent, and not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from subquad.report.compare import Comparison
from subquad.report.curves import Curve
from subquad.report.means import Mean
from subquad.report.published import Beside, varied_beside
from subquad.report.references import REFERENCE_METRIC, Reference
from subquad.report.report import Report
from subquad.report.rows import TableRow
from subquad.report.text import Spread

_FORMAT = 2


def report_values(report: Report) -> dict[str, Any]:
    """Everything in the report, for `--json` and notebooks."""
    return {
        "format": _FORMAT,
        "baseline": report.baseline,
        "headlines": list(report.headlines),
        "rows": [_row(row, report.published(row)) for row in report.rows],
        "references": [_reference(one) for one in report.references],
        "means": [_mean(one) for one in report.means],
        "curves": [_curve(one) for one in report.curves],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def report_records(report: Report) -> list[dict[str, Any]]:
    """A record for each row of the tables: mixers and references family by family, means, values of settings."""
    found = list[dict[str, Any]]()
    for family in dict.fromkeys(row.family for row in report.rows):
        found += [_row(row, report.published(row)) for row in report.rows if row.family == family]
        found += [_reference(one) for one in report.references if one.family == family]
    found += [_mean(one) for one in report.means]
    return [flat_record(one) for one in (*found, *(value for one in report.curves for value in _values(one)))]


def flat_record(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level of nested values: `score_mean`; lists as text, those of mappings key by key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key in ("setting", "at") and isinstance(value, Mapping):
            found[name] = "; ".join(f"{one}={other}" for one, other in value.items())
        elif isinstance(value, Mapping):
            found.update(flat_record(value, f"{name}_"))
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            found.update({f"{name}_{one}": _listed(each[one] for each in value) for one in value[0]})
        else:
            found[name] = _listed(value) if isinstance(value, list) else value
    return found


def _listed(values: Iterable[Any]) -> str:
    return "; ".join(_listed(one) if isinstance(one, list) else "" if one is None else str(one) for one in values)


def _row(row: TableRow, published: Sequence[Beside]) -> dict[str, Any]:
    return {
        "kind": "mixer",
        "dataset": row.dataset,
        "mixer": row.label,
        "setting": dict(row.setting),
        "protocol": row.protocol,
        "protocol_label": row.runs[0].protocol_label,
        "status": row.status(),
        "metric": row.metric,
        "seeds": list(row.seeds),
        "samples": row.samples,
        "score": _spread(row.score),
        "last_score": _spread(row.last_score),
        "macro_f1": _spread(row.macro_f1),
        "seconds": _spread(row.seconds),
        "parameters": row.parameters,
        "flops_per_step": row.flops_per_step,
        "best_epochs": list(row.best_epochs),
        "runs": [
            {
                "run": run.name,
                "seed": run.seed,
                "status": run.status,
                "reason": run.result.reason if run.result else None,
            }
            for run in row.runs
        ],
        "notes": list(row.notes),
        "published": [_beside(one) for one in published],
    }


def _reference(one: Reference) -> dict[str, Any]:
    low, high = one.interval
    return {
        "kind": "reference",
        "dataset": one.dataset,
        "mixer": one.name,
        "reference": one.key,
        "protocol": one.protocol,
        "metric": REFERENCE_METRIC,
        "score": {"mean": one.accuracy, "low": low, "high": high},
        "samples": one.samples,
        "runs": [{"run": run.name} for run in one.runs],
    }


def _mean(one: Mean) -> dict[str, Any]:
    return {
        "kind": "reference mean" if one.is_reference else "mean",
        "mixer": one.name,
        "protocol": one.protocol,
        "metric": one.metric,
        "datasets": list(one.datasets),
        "score": _spread(one.score),
    }


def _curve(one: Curve) -> dict[str, Any]:
    return {
        "dataset": one.rows[0].dataset,
        "mixer": one.rows[0].label,
        "protocol": one.rows[0].protocol,
        "metric": one.metric,
        "key": one.key,
        "at": dict(one.at),
        "sentence": one.sentence,
        "values": _values(one),
        "comparisons": [_comparison(pair) for pair in one.comparisons],
    }


def _values(one: Curve) -> list[dict[str, Any]]:
    return [
        {
            "kind": "value",
            "dataset": row.dataset,
            "mixer": row.label,
            "protocol": row.protocol,
            "metric": row.metric,
            "key": one.key,
            "value": row.runs[0].experiment.get(one.key),
            "at": dict(one.at),
            "base": row.is_base,
            "seeds": list(row.seeds),
            "validation": _spread(row.validation),
            "score": _spread(row.score),
            "published": [_beside(beside) for beside in varied_beside(row, one.key)],
        }
        for row in one.rows
    ]


def _beside(one: Beside) -> dict[str, Any]:
    printed = {**asdict(one.published), "cautions": list(one.published.cautions)}
    return {**printed, "comparable": not one.reasons, "reasons": list(one.reasons)}


def _comparison(one: Comparison) -> dict[str, Any]:
    estimate = {key: _finite(value) for key, value in asdict(one.estimate).items()} if one.estimate else None
    return {
        "dataset": one.first.dataset,
        "protocol": one.first.protocol,
        "first": one.first.name,
        "second": one.second.name,
        "estimate": estimate,
        "p_holm": one.adjusted,
        "seeds": one.seeds,
        "basis": one.basis,
        "verdict": one.verdict,
        "notes": list(one.notes),
    }


def _spread(value: Spread | None) -> dict[str, Any] | None:
    return asdict(value) if value else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
