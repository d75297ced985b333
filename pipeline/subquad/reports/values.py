"""The report as plain values, for JSON and CSV. Metrics are as in the runs' files: fractions,
not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from subquad.reports.compare import Comparison
from subquad.reports.curves import Curve
from subquad.reports.published import Beside, published_beside
from subquad.reports.ranks import RankedPair
from subquad.reports.references import Mean, Reference
from subquad.reports.report import Report
from subquad.reports.rows import TableRow
from subquad.reports.stats import Chance
from subquad.reports.text import Spread, Values

_FORMAT = 3
_ROW = (
    "dataset",
    "mixer",
    "setting",
    "protocol",
    "protocol_label",
    "status",
    "metric",
    "seeds",
    "samples",
    "score",
    "last_score",
    "besides",
    "seconds",
    "seconds_per_step",
    "tokens_per_second",
    "peak_memory_bytes",
    "parameters",
    "flops_per_step",
    "best_epochs",
    "notes",
)
_RANKING = (
    "protocol",
    "metric",
    "datasets",
    "mixers",
    "ranks",
    "friedman",
    "critical",
    "sentence",
    "least_p",
    "least_p_holm",
    "pairs",
)


def report_values(report: Report) -> Values:
    """Everything in the report, for `--json` and notebooks."""
    metrics = {}
    for row in report.rows:
        for name in (row.metric, *row.besides):
            metrics[name] = asdict(row.shown(name))
    examples = []
    for example in report.examples:
        for mixer, answer in example.answers:
            about = {"kind": "example", "dataset": example.dataset, "mixer": mixer}
            about |= {"sample": example.number, "target": example.target}
            examples.append({**about, "answer": answer})
    return {
        "format": _FORMAT,
        "baseline": report.baseline,
        "headlines": list(report.headlines),
        "metrics": metrics,
        "rows": [_row(row) | {"published": _beside(report.published(row))} for row in report.rows],
        "references": list(map(_reference, report.references)),
        "means": list(map(_mean, report.means)),
        "examples": examples,
        "rankings": [_picked(ranking, _RANKING) for ranking in report.rankings],
        "curves": list(map(_curve, report.curves)),
        "comparisons": list(map(_comparison, report.comparisons)),
    }


def _picked(thing: Any, names: Iterable[str]) -> Values:
    """Attributes by name, as JSON has them."""
    return {name: _as_json(getattr(thing, name)) for name in names}


def _as_json(value: Any) -> Any:
    if isinstance(value, Spread | Chance | RankedPair):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _as_json(entry) for key, entry in value.items()}
    return list(map(_as_json, value)) if isinstance(value, tuple) else value


def _row(row: TableRow) -> Values:
    own = {"mixer": row.label, "setting": dict(row.setting), "status": row.status()}
    if row.tuning:
        own["tuning"] = {**asdict(row.tuning), "words": row.tuning.words}
    runs = [_picked(run, ("name", "seed", "status", "reason", "faults")) for run in row.runs]
    return {"kind": "mixer", **_picked(row, _ROW), **own, "runs": runs}


def _reference(reference: Reference) -> Values:
    ends = zip(("low", "high"), reference.interval or (), strict=False)
    return {
        "kind": "reference",
        "mixer": reference.name,
        "reference": reference.key,
        "score": {"mean": reference.value, **dict(ends)},
        **_picked(reference, ("dataset", "protocol", "metric", "samples")),
        "runs": [{"name": run.name} for run in reference.runs],
    }


def _mean(mean: Mean) -> Values:
    kind = "reference mean" if mean.is_reference else "mean"
    picked = _picked(mean, ("protocol", "metric", "datasets", "score"))
    return {"kind": kind, "mixer": mean.name, **picked}


def _curve(curve: Curve) -> Values:
    first = curve.rows[0]
    about = _picked(first, ("dataset", "mixer", "protocol", "metric")) | {"mixer": first.label}
    about |= {"key": curve.key, "at": dict(curve.at)}
    values = [
        {
            "kind": "value",
            **about,
            "value": row.runs[0].leaves.get(curve.key),
            "base": row.is_base,
            **_picked(row, ("seeds", "validation", "score")),
            "published": _beside(published_beside(row, curve.key)),
        }
        for row in curve.rows
    ]
    pairs = [_comparison(pair) for pair in curve.comparisons]
    return {**about, "sentence": curve.sentence, "values": values, "comparisons": pairs}


def _beside(found: Iterable[Beside]) -> list[Values]:
    return [
        row.published.model_dump(mode="json")
        | {"comparable": not row.reasons, "reasons": list(row.reasons)}
        for row in found
    ]


def _comparison(pair: Comparison) -> Values:
    estimate = asdict(pair.estimate) if pair.estimate else {}
    finite = {key: value if math.isfinite(value) else None for key, value in estimate.items()}
    return {
        **_picked(pair.first, ("dataset", "protocol")),
        "first": pair.first.name,
        "second": pair.second.name,
        "estimate": finite or None,
        "p_holm": pair.adjusted,
        **_picked(pair, ("seeds", "basis", "verdict", "notes")),
    }
