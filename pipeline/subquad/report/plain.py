"""The report as JSON values, for `--json` and notebooks."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from subquad.report.beside import Beside
from subquad.report.build import Report
from subquad.report.compare import Comparison
from subquad.report.means import Mean
from subquad.report.oracles import METRIC, Oracle
from subquad.report.rows import Row
from subquad.report.sensitivity import Sensitivity
from subquad.report.sensitivity_words import sentence
from subquad.report.text import Spread

FORMAT = 1


def to_json(report: Report) -> dict[str, Any]:
    """Everything in the report. Metrics are as in the runs' files: fractions, not percent."""
    rows = zip(report.rows, report.published, strict=True)
    return {
        "format": FORMAT,
        "baseline": report.baseline,
        "headlines": list(report.headlines),
        "rows": [_row(row, beside) for row, beside in rows],
        "oracles": [_oracle(one) for one in report.oracles],
        "means": [_mean(one) for one in report.means],
        "sensitivities": [_sensitivity(one) for one in report.sensitivities],
        "comparisons": [_comparison(one) for one in report.comparisons],
    }


def _row(row: Row, beside: tuple[Beside, ...]) -> dict[str, Any]:
    return {
        "kind": "mixer",
        "dataset": row.dataset,
        "mixer": row.label,
        "setting": dict(row.setting),
        "protocol": row.protocol,
        "protocol_label": row.protocol_label,
        "metric": row.metric,
        "seeds": list(row.seeds),
        "score": _spread(row.score),
        "last_score": _spread(row.last_score),
        "macro_f1": _spread(row.macro_f1),
        "seconds": _spread(row.seconds),
        "parameters": row.parameters,
        "flops_per_step": row.flops_per_step,
        "best_epochs": list(row.best_epochs),
        "runs": [
            {
                "run": cell.name,
                "seed": cell.seed,
                "status": cell.status,
                "reason": cell.result.reason if cell.result else None,
            }
            for cell in row.cells
        ],
        "notes": list(row.notes),
        "published": [_beside(one) for one in beside],
    }


def _oracle(one: Oracle) -> dict[str, Any]:
    low, high = one.interval
    return {
        "kind": "oracle",
        "dataset": one.dataset,
        "oracle": one.key,
        "name": one.words,
        "protocol": one.protocol,
        "metric": METRIC,
        "score": one.accuracy,
        "low": low,
        "high": high,
        "samples": one.samples,
        "runs": [cell.name for cell in one.cells],
    }


def _mean(one: Mean) -> dict[str, Any]:
    return {
        "kind": "oracle mean" if one.oracle else "mean",
        "name": one.name,
        "protocol": one.protocol,
        "metric": one.metric,
        "datasets": list(one.datasets),
        "score": _spread(one.score),
    }


def _sensitivity(one: Sensitivity) -> dict[str, Any]:
    return {
        "kind": "sensitivity",
        "dataset": one.base.dataset,
        "mixer": one.base.label,
        "protocol": one.base.protocol,
        "metric": one.base.metric,
        "setting": one.key,
        "at": dict(one.base.setting),
        "sentence": sentence(one),
        "values": [
            {
                "value": value.row.cells[0].experiment.get(one.key),
                "base": value.base,
                "row": value.row.name,
                "seeds": list(value.row.seeds),
                "validation": _spread(value.validation),
                "score": _spread(value.row.score),
                "published": [_beside(beside) for beside in value.published],
            }
            for value in one.values
        ],
        "comparisons": [_comparison(pair) for pair in one.comparisons],
    }


def _beside(one: Beside) -> dict[str, Any]:
    printed = asdict(one.published)
    return {
        **printed,
        "cautions": list(printed["cautions"]),
        "comparable": not one.reasons,
        "reasons": list(one.reasons),
    }


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
