"""The report as CSV (RFC 4180, UTF-8): a record per row of the tables; numbers unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from subquad.report import text
from subquad.report.beside import Beside
from subquad.report.build import Report
from subquad.report.means import Mean
from subquad.report.oracles import METRIC, Oracle
from subquad.report.rows import Row, status_of
from subquad.report.sensitivity import Sensitivity
from subquad.report.sensitivity import Value as SensitivityValue
from subquad.report.text import Spread

Value = str | int | float | None

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def neutral(value: Value) -> Value:
    """Text that a spreadsheet would run as a formula, behind an apostrophe; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(_FORMULA) else value


def render(report: Report) -> str:
    """All records, each ended by CR LF."""
    return lines(records(report))


def records(report: Report) -> list[dict[str, Value]]:
    """A record for each row of the tables; that of a mixer, which comes first, has all columns."""
    found = list[dict[str, Value]]()
    for family in report.families:
        found += [_record(row, beside) for row, beside in family.rows] + [_oracle(one) for one in family.oracles]
    values = [_value(one, value) for one in report.sensitivities for value in one.values]
    return found + [_mean(one) for one in report.means] + values


def lines(records: Sequence[Mapping[str, Value]]) -> str:
    """Records under the columns that any of them has, in the order in which they come up."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(stream, columns, restval=None, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: neutral(value) for name, value in record.items()} for record in records)
    return stream.getvalue()


def _record(row: Row, beside: tuple[Beside, ...]) -> dict[str, Value]:
    return {
        "dataset": row.dataset,
        "mixer": row.label,
        "setting": "; ".join(f"{key}={value}" for key, value in row.setting),
        "protocol": row.protocol,
        "protocol_label": row.protocol_label,
        "seeds": len(row.counted),
        "runs": len(row.cells),
        "status": status_of(row),
        "metric": row.metric,
        "unit": text.unit(row.metric),
        **_spread("score", row.score, row.metric),
        **_spread("last_score", row.last_score, row.metric),
        **_spread("macro_f1", row.macro_f1, "macro_f1"),
        **_spread("seconds", row.seconds, "seconds"),
        "parameters": row.parameters,
        "flops_per_step": row.flops_per_step,
        "best_epochs": " ".join(f"{epoch:g}" for epoch in row.best_epochs),
        "published": "; ".join(f"{one.published.value:g}" for one in beside),
        "published_source": "; ".join(f"{one.published.model}, {one.reference}" for one in beside),
        "verdict": " | ".join(one.verdict for one in beside),
        "cautions": " | ".join("; ".join(one.published.cautions) for one in beside),
        "notes": "; ".join(row.notes),
        "kind": "mixer",
        "samples": _samples(row),
        "score_low": None,
        "score_high": None,
    }


def _oracle(one: Oracle) -> dict[str, Value]:
    """A record of the same columns; what only trained models have stays empty."""
    low, high = one.interval
    return {
        "dataset": one.dataset,
        "mixer": one.name,
        "protocol": one.protocol,
        "metric": METRIC,
        "unit": text.unit(METRIC),
        "score_mean": text.scaled(one.accuracy, METRIC),
        "kind": "oracle",
        "samples": one.samples,
        "score_low": text.scaled(low, METRIC),
        "score_high": text.scaled(high, METRIC),
    }


def _mean(one: Mean) -> dict[str, Value]:
    return {
        "dataset": f"mean over {', '.join(one.datasets)}",
        "mixer": one.name,
        "protocol": one.protocol,
        "seeds": one.score.count or None,
        "metric": one.metric,
        "unit": text.unit(one.metric),
        **_spread("score", one.score, one.metric),
        "kind": "oracle mean" if one.oracle else "mean",
    }


def _value(one: Sensitivity, value: SensitivityValue) -> dict[str, Value]:
    """A row's record again, as a value of one setting."""
    return {
        **_record(value.row, value.published),
        "setting": "; ".join(f"{key}={given}" for key, given in (*one.base.setting, (one.key, value.text))),
        "kind": "sensitivity",
        "base": "yes" if value.base else "no",
        **_spread("validation", value.validation, one.base.metric),
    }


def _samples(row: Row) -> int | None:
    tests = (cell.result.test for cell in row.counted if cell.result)
    return next((test.samples for test in tests if test), None)


def _spread(name: str, value: Spread | None, metric: str) -> dict[str, Value]:
    mean = None if value is None else text.scaled(value.mean, metric)
    std = None if value is None or value.std is None else text.scaled(value.std, metric)
    return {f"{name}_mean": mean, f"{name}_std": std}
