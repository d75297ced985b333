"""The report as plain values: nested for JSON, a flat record per row of the tables for CSV.

Metrics are as in the runs' files: fractions, not percent, and not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from subquad.report.compare import Comparison
from subquad.report.curves import Curve
from subquad.report.published import Beside, published_beside
from subquad.report.references import REFERENCE_METRIC, Reference
from subquad.report.report import Report
from subquad.report.rows import TableRow
from subquad.report.text import Spread

_FORMAT = 2
_ROW = ("dataset", "mixer", "setting", "protocol", "protocol_label", "status", "metric", "seeds", "samples", "score")
_ROW += ("last_score", "macro_f1", "seconds", "parameters", "flops_per_step", "best_epochs", "notes")


def report_values(report: Report) -> dict[str, Any]:
    """Everything in the report, for `--json` and notebooks."""
    means = [
        {"kind": "reference mean" if one.is_reference else "mean", "mixer": one.name}
        | _picked(one, ("protocol", "metric", "datasets", "score"))
        for one in report.means
    ]
    return {
        "format": _FORMAT,
        "baseline": report.baseline,
        "headlines": list(report.headlines),
        "rows": [{**_row(row), "published": _beside(report.published(row))} for row in report.rows],
        "references": [_reference(one) for one in report.references],
        "means": means,
        "curves": [_curve(one) for one in report.curves],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def flat_record(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level of nested values: `score_mean`; lists as text, those of mappings key by key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key in ("setting", "at"):
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


def _picked(thing: Any, names: Iterable[str]) -> dict[str, Any]:
    """Attributes by name, as JSON has them."""
    return {name: _plain(getattr(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Spread):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def _row(row: TableRow) -> dict[str, Any]:
    runs = [_picked(run, ("name", "seed", "status", "reason")) for run in row.runs]
    named = {"mixer": row.label, "setting": dict(row.setting), "status": row.status()}
    return {"kind": "mixer", **{name: named.get(name, _plain(getattr(row, name))) for name in _ROW}, "runs": runs}


def _reference(one: Reference) -> dict[str, Any]:
    low, high = one.interval
    return {
        "kind": "reference",
        "mixer": one.name,
        "reference": one.key,
        "metric": REFERENCE_METRIC,
        "score": {"mean": one.accuracy, "low": low, "high": high},
        **_picked(one, ("dataset", "protocol", "samples")),
        "runs": [{"name": run.name} for run in one.runs],
    }


def _curve(one: Curve) -> dict[str, Any]:
    about = {**_picked(one.rows[0], ("dataset", "mixer", "protocol", "metric")), "mixer": one.rows[0].label}
    about |= {"key": one.key, "at": dict(one.at)}
    values = [
        {
            "kind": "value",
            **about,
            "value": row.runs[0].leaves.get(one.key),
            "base": row.is_base,
            **_picked(row, ("seeds", "validation", "score")),
            "published": _beside(published_beside(row, one.key)),
        }
        for row in one.rows
    ]
    pairs = [_comparison(pair) for pair in one.comparisons]
    return {**about, "sentence": one.sentence, "values": values, "comparisons": pairs}


def _beside(found: Iterable[Beside]) -> list[dict[str, Any]]:
    return [
        {
            **{name: _plain(value) for name, value in one.published.model_dump().items()},
            "comparable": not one.reasons,
            "reasons": list(one.reasons),
        }
        for one in found
    ]


def _comparison(one: Comparison) -> dict[str, Any]:
    estimate = asdict(one.estimate) if one.estimate else None
    finite = estimate and {key: value if math.isfinite(value) else None for key, value in estimate.items()}
    said = {"first": one.first.name, "second": one.second.name, "estimate": finite, "p_holm": one.adjusted}
    return {
        **_picked(one.first, ("dataset", "protocol")),
        **said,
        **_picked(one, ("seeds", "basis", "verdict", "notes")),
    }
