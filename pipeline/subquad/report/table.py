"""The report's tables as text, the same for every format: results, published rows, pairs of mixers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from subquad.report import text
from subquad.report.beside import Beside
from subquad.report.build import Report
from subquad.report.compare import Comparison
from subquad.report.means import Mean
from subquad.report.oracles import MEANING, METRIC, Oracle
from subquad.report.rows import Row, status_of
from subquad.report.sensitivity import Sensitivity


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        headers: one a column.
        lines: cells, row by row.
        numeric: columns that are aligned right.
        oracles: lines that are of guesses without a model, shown apart.
    """

    headers: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: frozenset[int]
    oracles: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Column:
    header: str
    cell: Callable[[Row, tuple[Beside, ...]], str]
    numeric: bool = False
    of_oracle: Callable[[Oracle], str] = lambda _: text.DASH


def results(report: Report, *, reasons: bool = True) -> Table:
    """One line per row, with the published rows in short; after those of a data set and protocol their oracles.

    Args:
        reasons: the status says why a run did not finish.
    """
    columns, lines, oracles = _columns(report, reasons), list[tuple[str, ...]](), set[int]()
    for family in report.families:
        lines += [tuple(column.cell(row, beside) for column in columns) for row, beside in family.rows]
        oracles |= set(range(len(lines), len(lines) + len(family.oracles)))
        lines += [tuple(column.of_oracle(one) for column in columns) for one in family.oracles]
    return Table(
        headers=tuple(column.header for column in columns),
        lines=tuple(lines),
        numeric=frozenset(index for index, column in enumerate(columns) if column.numeric),
        oracles=frozenset(oracles),
    )


def _columns(report: Report, reasons: bool) -> list[_Column]:
    rows = report.rows
    metrics = {row.metric for row in rows} | ({METRIC} if report.oracles else set())
    score = f"test {_with_unit(next(iter(metrics)))}" if len(metrics) == 1 else "test score"
    columns = [
        _Column("data set", lambda row, _: row.dataset, of_oracle=lambda one: one.dataset),
        _Column("mixer", lambda row, _: row.name, of_oracle=lambda one: one.name),
        _Column("protocol", lambda row, _: row.protocol, of_oracle=lambda one: one.protocol),
        _Column("seeds", lambda row, _: str(len(row.counted)), numeric=True),
        _Column(
            score,
            lambda row, _: _score(row, len(metrics) > 1),
            numeric=True,
            of_oracle=lambda one: _oracle_score(one, len(metrics) > 1),
        ),
        _Column("last epoch", lambda row, _: text.spread(row.last_score, row.metric), numeric=True),
        _Column("macro-F1 (%)", lambda row, _: text.spread(row.macro_f1, "macro_f1"), numeric=True),
        _Column("published", lambda _, beside: "; ".join(_in_short(one) for one in beside) or text.DASH),
        _Column("status", lambda row, _: status_of(row, reasons=reasons), of_oracle=lambda one: f"n = {one.samples:,}"),
        _Column("parameters", lambda row, _: text.count(row.parameters), numeric=True),
        _Column("training", lambda row, _: _training(row), numeric=True),
        _Column("FLOPs/step", lambda row, _: text.si(row.flops_per_step), numeric=True),
        _Column("best epoch", lambda row, _: text.span(row.best_epochs), numeric=True),
    ]
    return [column for column in columns if _wanted(column.header, rows)]


def _wanted(header: str, rows: tuple[Row, ...]) -> bool:
    """Columns that would be empty in every row are left out."""
    known = {
        "last epoch": any(row.last_score for row in rows),
        "FLOPs/step": any(row.flops_per_step for row in rows),
        "macro-F1 (%)": any(row.macro_f1 for row in rows),
    }
    return known.get(header, True)


def _with_unit(metric: str) -> str:
    unit = text.unit(metric)
    return f"{metric} ({unit})" if unit else metric


def _score(row: Row, named: bool) -> str:
    shown = text.spread(row.score, row.metric)
    if row.score is None:
        return shown
    label = f" {_with_unit(row.metric)}" if named else ""
    return f"{shown}{label}{' best on test' if row.protocol == 'paper' else ''}"


def _oracle_score(one: Oracle, named: bool) -> str:
    """`36.40 [34.3, 38.5]`."""
    low, high = (text.points(end, METRIC) for end in one.interval)
    return f"{text.number(one.accuracy, METRIC)} [{low}, {high}]" + (f" {_with_unit(METRIC)}" if named else "")


def _training(row: Row) -> str:
    return text.duration(row.seconds.mean if row.seconds else None)


def _in_short(one: Beside) -> str:
    return f"{one.published.value:g} ({'comparable' if not one.reasons else 'not comparable'})"


def published(report: Report) -> Table:
    """One line per row and published row, with the verdict and its reasons."""
    lines = [
        (
            row.dataset,
            row.name,
            row.protocol,
            _score(row, named=False),
            f"{one.published.value:g}",
            f"{one.published.model}, {one.reference}",
            one.verdict,
            "; ".join(one.published.cautions) or text.DASH,
        )
        for row, beside in zip(report.rows, report.published, strict=True)
        for one in beside
    ]
    headers = ("data set", "mixer", "protocol", "ours", "published", "source", "verdict", "caution")
    return Table(headers, tuple(lines), frozenset({3, 4}))


def means(report: Report) -> Table:
    """One line per mixer and oracle: its mean over data sets."""
    lines = [
        (_over(one), one.name, one.protocol, str(one.score.count or text.DASH), _mean(one)) for one in report.means
    ]
    metrics = {one.metric for one in report.means}
    score = f"mean test {_with_unit(next(iter(metrics)))}" if len(metrics) == 1 else "mean test score"
    oracles = frozenset(number for number, one in enumerate(report.means) if one.oracle)
    return Table(("data sets", "mixer", "protocol", "seeds", score), tuple(lines), frozenset({3, 4}), oracles)


def _over(one: Mean) -> str:
    """`all 9`, `8 of 9, not JapaneseVowels`, `2 of 9: ERing, Libras`."""
    if not one.others:
        return f"all {len(one.datasets)}"
    count = f"{len(one.datasets)} of {len(one.datasets) + len(one.others)}"
    if len(one.others) <= len(one.datasets):
        return f"{count}, not {', '.join(one.others)}"
    return f"{count}: {', '.join(one.datasets)}"


def _mean(one: Mean) -> str:
    return text.spread(one.score, one.metric)


def comparisons(report: Report) -> Table:
    """One line per pair of mixers."""
    headers = ("data set", "pair", "protocol", "difference", "95 % interval", "p (Holm)", "seeds", "over", "verdict")
    lines = tuple((*_comparison(one), "; ".join(one.notes) or text.DASH) for one in report.comparisons)
    return Table((*headers, "notes"), lines, frozenset({3, 4, 5, 6}))


def _comparison(one: Comparison) -> tuple[str, ...]:
    return (
        one.first.dataset,
        f"{one.first.name} − {one.second.name}",
        one.first.protocol,
        *_estimate(one),
        str(one.seeds),
        one.basis,
        one.verdict,
    )


def _estimate(one: Comparison) -> tuple[str, str, str]:
    """Difference, interval and adjusted p-value."""
    metric, estimate = one.first.metric, one.estimate
    if estimate is None:
        return text.DASH, text.DASH, text.DASH
    adjusted = text.DASH if one.adjusted is None else f"{one.adjusted:.3f}"
    return (
        text.points(estimate.difference, metric),
        f"[{text.points(estimate.low, metric)}, {text.points(estimate.high, metric)}]",
        "< 0.001" if adjusted == "0.000" else adjusted,
    )


def sensitivity(one: Sensitivity) -> Table:
    """One line per value of a varied setting, the base's marked."""
    metric = one.base.metric
    lines = [
        (
            f"{value.text} (base)" if value.base else value.text,
            text.spread(value.validation, metric),
            _score(value.row, named=False),
            str(len(value.row.counted)),
            "; ".join(_in_short(beside) for beside in value.published) or text.DASH,
            "; ".join(beside.reference for beside in value.published) or text.DASH,
        )
        for value in one.values
    ]
    validation = f"validation ({text.unit(metric)})" if text.unit(metric) else "validation"
    headers = (one.name, validation, f"test {_with_unit(metric)}", "seeds", "published", "source")
    kept = range(len(headers)) if any(value.published for value in one.values) else range(4)
    return Table(
        tuple(headers[index] for index in kept),
        tuple(tuple(line[index] for index in kept) for line in lines),
        frozenset({1, 2, 3}),
    )


def protocols(report: Report) -> list[tuple[str, str]]:
    """What each protocol in the table means, and oracle rows."""
    found = sorted({(row.protocol, row.protocol_label) for row in report.rows})
    return [*found, ("oracle", MEANING)] if report.oracles else found


def unfinished(report: Report) -> list[str]:
    """Why runs did not finish, or do not count: a line for each row that has such a reason."""
    return [
        f"{row.dataset}, {row.name} ({row.protocol}): {status_of(row)}"
        for row in report.rows
        if status_of(row) != status_of(row, reasons=False)
    ]


def notes(report: Report) -> list[str]:
    """What runs say a reader of their numbers must know, with the rows it is said of where it is not all of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for note in row.notes:
            found.setdefault((row.dataset, note), []).append(row.name)
    rows = Counter(row.dataset for row in report.rows)
    return [
        f"{dataset}: {note}" + ("" if len(names) == rows[dataset] else f" ({', '.join(dict.fromkeys(names))})")
        for (dataset, note), names in found.items()
    ]
