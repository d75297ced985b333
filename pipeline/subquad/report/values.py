"""The report as plain values, for JSON and CSV. Metrics are as in the runs' files: fractions, not rounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from subquad.report.compare import Comparison
from subquad.report.curves import Curve
from subquad.report.published import Beside, published_beside
from subquad.report.ranks import Ranking
from subquad.report.references import Reference
from subquad.report.report import ExampleTexts, Report
from subquad.report.rows import TableRow
from subquad.report.stats import Chance
from subquad.report.text import Spread

_FORMAT = 3
_ROW = ("dataset", "mixer", "setting", "protocol", "protocol_label", "status", "metric", "seeds", "samples", "score")
_ROW += (
    "last_score",
    "besides",
    "seconds",
    "tokens_per_second",
    "parameters",
    "flops_per_step",
    "best_epochs",
    "notes",
)


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
        "metrics": {name: asdict(row.shown(name)) for row in report.rows for name in (row.metric, *row.besides)},
        "rows": [{**_row(row), "published": _beside(report.published(row))} for row in report.rows],
        "references": [_reference(one) for one in report.references],
        "means": means,
        "examples": list(_examples(report.examples)),
        "rankings": [_ranking_values(one) for one in report.rankings],
        "curves": [_curve(one) for one in report.curves],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def _picked(thing: Any, names: Iterable[str]) -> dict[str, Any]:
    """Attributes by name, as JSON has them."""
    return {name: _plain(getattr(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Spread | Chance):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _row(row: TableRow) -> dict[str, Any]:
    named = {"mixer": row.label, "setting": dict(row.setting), "status": row.status()}
    tuning = {"tuning": {**asdict(row.tuning), "words": row.tuning.words}} if row.tuning else {}
    runs = [_picked(run, ("name", "seed", "status", "reason", "faults")) for run in row.runs]
    return {"kind": "mixer", **_picked(row, _ROW), **named, **tuning, "runs": runs}


def _reference(one: Reference) -> dict[str, Any]:
    return {
        "kind": "reference",
        "mixer": one.name,
        "reference": one.key,
        "score": {"mean": one.value, **dict(zip(("low", "high"), one.interval or (), strict=False))},
        **_picked(one, ("dataset", "protocol", "metric", "samples")),
        "runs": [{"name": run.name} for run in one.runs],
    }


def _examples(examples: Iterable[ExampleTexts]) -> Iterator[dict[str, Any]]:
    """A record for each text."""
    for example in examples:
        for name, answer in example.answers:
            yield {
                "kind": "example",
                "dataset": example.dataset,
                "mixer": name,
                "sample": example.number,
                "target": example.target,
                "answer": answer,
            }


def _ranking_values(one: Ranking) -> dict[str, Any]:
    least, corrected = one.least
    about = _picked(one, ("protocol", "metric", "datasets", "mixers", "ranks", "friedman", "critical", "sentence"))
    return {**about, "least_p": least, "least_p_holm": corrected, "pairs": [asdict(pair) for pair in one.pairs]}


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
        {**one.published.model_dump(mode="json"), "comparable": not one.reasons, "reasons": list(one.reasons)}
        for one in found
    ]


def _comparison(one: Comparison) -> dict[str, Any]:
    estimate = asdict(one.estimate) if one.estimate else {}
    finite = {key: value if math.isfinite(value) else None for key, value in estimate.items()}
    said = {"first": one.first.name, "second": one.second.name, "estimate": finite or None, "p_holm": one.adjusted}
    about = _picked(one.first, ("dataset", "protocol"))
    return {**about, **said, **_picked(one, ("seeds", "basis", "verdict", "notes"))}
