"""The report as plain values, for JSON and CSV. Metrics are as in the runs' files: fractions,
not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from subquad.reports.beside import Beside, published_beside
from subquad.reports.compare import Comparison
from subquad.reports.curves import Curve
from subquad.reports.references import Mean, Reference
from subquad.reports.report import Report
from subquad.reports.rows import TableRow
from subquad.reports.text import Values

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
_RUN = ("name", "seed", "status", "reason", "faults")
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
    rows = []
    for row in report.rows:
        for name in (row.metric, *row.besides):
            metrics[name] = asdict(row.shown(name))
        values = _row(row)
        values["published"] = _beside(report.published(row))
        rows.append(values)
    examples = []
    for example in report.examples:
        for mixer, answer in example.answers:
            examples.append(
                {
                    "kind": "example",
                    "dataset": example.dataset,
                    "mixer": mixer,
                    "sample": example.number,
                    "target": example.target,
                    "answer": answer,
                }
            )
    return {
        "format": _FORMAT,
        "baseline": report.baseline,
        "headlines": list(report.headlines),
        "metrics": metrics,
        "rows": rows,
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
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _as_json(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return list(map(_as_json, value))
    return value


def _row(row: TableRow) -> Values:
    values = {"kind": "mixer", **_picked(row, _ROW)}
    values["mixer"] = row.label
    values["setting"] = dict(row.setting)
    values["status"] = row.status()
    if row.tuning:
        values["tuning"] = {**asdict(row.tuning), "words": row.tuning.words}
    values["runs"] = [_picked(run, _RUN) for run in row.runs]
    return values


def _reference(reference: Reference) -> Values:
    score = {"mean": reference.value}
    if reference.interval:
        score["low"], score["high"] = reference.interval
    return {
        "kind": "reference",
        "mixer": reference.name,
        "reference": reference.key,
        "score": score,
        **_picked(reference, ("dataset", "protocol", "metric", "samples")),
        "runs": [{"name": run.name} for run in reference.runs],
    }


def _mean(mean: Mean) -> Values:
    kind = "reference mean" if mean.is_reference else "mean"
    picked = _picked(mean, ("protocol", "metric", "datasets", "score"))
    return {"kind": kind, "mixer": mean.name, **picked}


def _curve(curve: Curve) -> Values:
    first = curve.rows[0]
    about = {
        "dataset": first.dataset,
        "mixer": first.label,
        "protocol": first.protocol,
        "metric": first.metric,
        "key": curve.key,
        "at": dict(curve.at),
    }
    values = []
    for row in curve.rows:
        values.append(
            {
                "kind": "value",
                **about,
                "value": row.runs[0].leaves.get(curve.key),
                "base": row.is_base,
                **_picked(row, ("seeds", "validation", "score")),
                "published": _beside(published_beside(row, curve.key)),
            }
        )
    return {
        **about,
        "sentence": curve.sentence,
        "values": values,
        "comparisons": list(map(_comparison, curve.comparisons)),
    }


def _beside(found: Iterable[Beside]) -> list[Values]:
    rows = []
    for row in found:
        values = row.published.model_dump(mode="json")
        values["comparable"] = not row.reasons
        values["reasons"] = list(row.reasons)
        rows.append(values)
    return rows


def _comparison(pair: Comparison) -> Values:
    estimate = None
    if pair.estimate:
        estimate = asdict(pair.estimate)
        for name, value in estimate.items():
            if not math.isfinite(value):
                estimate[name] = None
    return {
        "dataset": pair.first.dataset,
        "protocol": pair.first.protocol,
        "first": pair.first.name,
        "second": pair.second.name,
        "estimate": estimate,
        "p_holm": pair.adjusted,
        "seeds": pair.seeds,
        "basis": pair.basis,
        "verdict": pair.verdict,
        "notes": list(pair.notes),
    }
