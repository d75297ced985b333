"""A report as tables and sentences, the same for every format: terminal, Markdown, LaTeX and HTML render this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subquad.report import text
from subquad.report.charts import Chart, curve_chart, training_charts
from subquad.report.compare import METHOD, Comparison
from subquad.report.curves import CURVE_NOTE, Curve
from subquad.report.published import Beside, published_beside, published_faults, source_title
from subquad.report.references import REFERENCE_MEANING, REFERENCE_METRIC, Reference
from subquad.report.report import Report
from subquad.report.rows import TableRow
from subquad.report.run import ReportedRun
from subquad.report.values import flat_record, report_values

NEVER = 99
"""Rank of columns that a terminal never shows: its lines say the same."""
_REASONS = 3


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        header: its name.
        numeric: whether it is aligned right.
        rank: 0 for columns that are always shown; of the others a terminal leaves out the highest until the rest fits.
    """

    header: str
    numeric: bool = False
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """A table: its columns, its cells row by row, and the lines that are shown apart, in italics."""

    columns: tuple[Column, ...]
    lines: tuple[tuple[str, ...], ...]
    italic: frozenset[int] = frozenset()

    @staticmethod
    def of(columns: Sequence[Column], rows: Sequence[Mapping[str, str]], italic: Iterable[int] = ()) -> Table:
        """From cells by header; columns that no row fills are left out."""
        kept = [one for one in columns if any(row.get(one.header, text.DASH) != text.DASH for row in rows)]
        lines = tuple(tuple(row.get(one.header, text.DASH) for one in kept) for row in rows)
        return Table(tuple(kept), lines, frozenset(italic))


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document.

    Attributes:
        title: its heading.
        table: its table, if it has one.
        lines: what is to be said below it.
        headlines: the most important sentences; on a terminal they come last of all.
        notes: explanations, in a quieter voice.
        charts: beside the table.
        brief: what a terminal shows in place of all that, None for all of it; charts it never shows.
    """

    title: str
    table: Table | None = None
    lines: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    brief: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ReportDocument:
    """Everything that a report says.

    Attributes:
        title: of the page.
        lead: lines above all sections.
        sections: the parts, in order.
        runs: where its numbers come from.
        pictures: PNG files, by name.
        records: for CSV, a mapping per row of the tables.
        values: for JSON.
    """

    title: str
    lead: tuple[str, ...] = ()
    sections: tuple[Section, ...]
    runs: tuple[ReportedRun, ...] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    records: tuple[Mapping[str, Any], ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def document_of(report: Report) -> ReportDocument:
    """The report of runs and studies."""
    parts = [_results(report), _means(report), _curve_sections(report), _published(report), _pairs(report)]
    training = Section(title="While training", charts=tuple(training_charts(report)), brief=())
    values = report_values(report)
    along = [value for curve in values["curves"] for value in curve["values"]]
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    shown = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if len(datasets) > 3 else "")
    return ReportDocument(
        title=f"Token mixers on {shown}",
        sections=tuple(one for part in parts for one in part) + ((training,) if training.charts else ()),
        runs=report.runs,
        records=tuple(map(flat_record, (*values["rows"], *values["references"], *values["means"], *along))),
        values=values,
    )


def _results(report: Report) -> list[Section]:
    """The table of rows, after those of a data set and protocol their reference scores."""
    metrics = {row.metric for row in report.rows} | ({REFERENCE_METRIC} if report.references else set())
    named = len(metrics) > 1
    score = "test score" if named else f"test {text.Metric(next(iter(metrics))).with_unit}"
    cells, italic = list[dict[str, str]](), set[int]()
    for family in dict.fromkeys(row.family for row in report.rows):
        cells += [_row_cells(row, score, named, report.published(row)) for row in report.rows if row.family == family]
        guesses = [one for one in report.references if one.family == family]
        italic |= set(range(len(cells), len(cells) + len(guesses)))
        cells += [_reference_cells(one, score, named) for one in guesses]
    plain = all(row.status() == f"{len(row.counted)} finished" for row in report.rows)
    columns = (
        *(Column("data set"), Column("mixer"), Column("protocol")),
        *(Column("seeds", numeric=True), Column(score, numeric=True), Column("last epoch", numeric=True)),
        Column("macro-F1 (%)", numeric=True, rank=4),
        Column("published", rank=NEVER),
        Column("status", rank=7 if plain else 1),
        Column("parameters", numeric=True, rank=3),
        Column("training", numeric=True, rank=2),
        Column("FLOPs/step", numeric=True, rank=5),
        Column("best epoch", numeric=True, rank=6),
    )
    table = Table.of(columns, cells, italic)
    return [
        Section(
            title="Results",
            table=table,
            lines=tuple(_unfinished(report)),
            headlines=report.headlines,
            notes=tuple(_notes(report)),
        )
    ]


def _row_cells(row: TableRow, score: str, named: bool, published: Sequence[Beside]) -> dict[str, str]:
    return {
        "data set": row.dataset,
        "mixer": row.name,
        "protocol": row.protocol,
        "seeds": str(len(row.counted)),
        score: _score(row, named),
        "last epoch": text.Metric(row.metric).score(row.last_score),
        "macro-F1 (%)": text.Metric("macro_f1").score(row.macro_f1),
        "published": _in_short(published),
        "status": row.status(reasons=False),
        "parameters": text.DASH if row.parameters is None else f"{row.parameters:,}",
        "training": text.duration(row.seconds.mean if row.seconds else None),
        "FLOPs/step": _with_prefix(row.flops_per_step),
        "best epoch": _span(row.best_epochs),
    }


def _reference_cells(one: Reference, score: str, named: bool) -> dict[str, str]:
    metric = text.Metric(REFERENCE_METRIC)
    shown = f"{metric.score(one.accuracy)} {metric.interval(*one.interval)}"
    return {
        "data set": one.dataset,
        "mixer": one.name,
        "protocol": one.protocol,
        score: f"{shown} {metric.with_unit}" if named else shown,
        "status": f"n = {one.samples:,}",
    }


def _score(row: TableRow, named: bool = False) -> str:
    metric = text.Metric(row.metric)
    shown = metric.score(row.score)
    if row.score is None:
        return shown
    label = f" {metric.with_unit}" if named else ""
    return f"{shown}{label}{' best on test' if row.protocol == 'paper' else ''}"


def _in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(one.in_short for one in beside) or text.DASH


def _unfinished(report: Report) -> list[str]:
    """Why runs did not finish, or do not count: a line for each row that has such a reason."""
    return [
        f"{row.dataset}, {row.name} ({row.protocol}): {row.status()}"
        for row in report.rows
        if row.status() != row.status(reasons=False)
    ]


def _notes(report: Report) -> list[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the rows it is said of."""
    protocols = sorted({(row.protocol, row.protocol_label) for row in report.rows})
    found: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for note in row.notes:
            found.setdefault((row.dataset, note), []).append(row.name)
    rows = Counter(row.dataset for row in report.rows)
    return [
        *(f"{name}: {label}" for name, label in protocols),
        *([f"reference: {REFERENCE_MEANING}"] if report.references else []),
        *(
            f"{dataset}: {note}" + ("" if len(names) == rows[dataset] else f" ({', '.join(dict.fromkeys(names))})")
            for (dataset, note), names in found.items()
        ),
        *(f"left out: {fault}" for fault in published_faults()),
    ]


def _means(report: Report) -> list[Section]:
    metrics = {one.metric for one in report.means}
    score = f"mean test {text.Metric(next(iter(metrics))).with_unit}" if len(metrics) == 1 else "mean test score"
    cells = [
        {
            "data sets": one.over,
            "mixer": one.name,
            "protocol": one.protocol,
            "seeds": str(one.score.count or text.DASH),
            score: text.Metric(one.metric).score(one.score),
        }
        for one in report.means
    ]
    columns = (Column("data sets"), Column("mixer"), Column("protocol"))
    columns += (Column("seeds", numeric=True), Column(score, numeric=True))
    italic = [number for number, one in enumerate(report.means) if one.is_reference]
    return [Section(title="Means over data sets", table=Table.of(columns, cells, italic))] if cells else []


def _curve_sections(report: Report) -> list[Section]:
    """A section for each curve; what holds for all of them is said below the last."""
    return [
        Section(
            title=f"Varied: {one.title}",
            table=_curve_table(one),
            lines=(one.sentence,),
            notes=(CURVE_NOTE,) if one is report.curves[-1] else (),
            charts=(curve_chart(one),),
        )
        for one in report.curves
    ]


def _curve_table(one: Curve) -> Table:
    """One line per value of the setting, the base's marked."""
    metric = one.metric
    validation, test = (f"{split} {metric.with_unit}" for split in ("validation", "test"))
    cells = [
        {
            one.name: f"{one.value(row)} (base)" if row.is_base else one.value(row),
            validation: metric.score(row.validation),
            test: _score(row),
            "seeds": str(len(row.counted)),
            "published": _in_short(published_beside(row, one.key)),
            "source": "; ".join(beside.published.reference for beside in published_beside(row, one.key)) or text.DASH,
        }
        for row in one.rows
    ]
    columns = (Column(one.name), *(Column(name, numeric=True) for name in (validation, test, "seeds")))
    return Table.of((*columns, Column("published"), Column("source", rank=NEVER)), cells)


def _published(report: Report) -> list[Section]:
    """One line per row and published row, with the verdict and its reasons."""
    pairs = [(row, one) for row in report.rows for one in report.published(row)]
    cells = [
        {
            "data set": row.dataset,
            "mixer": row.name,
            "protocol": row.protocol,
            "ours": _score(row),
            "published": f"{one.published.value:g}",
            "source": f"{one.published.model}, {one.published.reference}",
            "verdict": one.verdict(),
            "caution": "; ".join(one.published.cautions) or text.DASH,
        }
        for row, one in pairs
    ]
    brief = tuple(
        f"{row.dataset}, {row.name} ({row.protocol}): published {one.published.value:g} ({one.published.model}, "
        f"{one.published.reference}), {one.verdict(_REASONS)}"
        for row, one in pairs
    )
    columns = (Column("data set"), Column("mixer"), Column("protocol"), Column("ours", numeric=True))
    columns += (Column("published", numeric=True), Column("source"), Column("verdict"), Column("caution"))
    sources = sorted({one.published.source for _, one in pairs})
    titles = tuple(f"{name}: {source_title(name)}" for name in sources)
    part = Section(title="Beside published rows", table=Table.of(columns, cells), notes=titles, brief=brief)
    return [part] if pairs else []


def _pairs(report: Report) -> list[Section]:
    """One line per pair of mixers; a terminal shows the headlines instead."""
    names = ("difference", "95 % interval", "p (Holm)", "seeds")
    columns = (Column("data set"), Column("pair"), Column("protocol"), *(Column(name, numeric=True) for name in names))
    columns += (Column("over"), Column("verdict"), Column("notes"))
    table = Table.of(columns, [_pair_cells(one) for one in report.comparisons])
    return [Section(title="Differences between mixers", table=table, notes=(METHOD,), brief=())] if table.lines else []


def _pair_cells(one: Comparison) -> dict[str, str]:
    difference, ends = one.estimate_texts
    adjusted = text.DASH if one.adjusted is None else f"{one.adjusted:.3f}"
    return {
        "data set": one.first.dataset,
        "pair": f"{one.first.name} − {one.second.name}",
        "protocol": one.first.protocol,
        "difference": difference,
        "95 % interval": ends,
        "p (Holm)": "< 0.001" if adjusted == "0.000" else adjusted,
        "seeds": str(one.seeds),
        "over": one.basis,
        "verdict": one.verdict,
        "notes": "; ".join(one.notes) or text.DASH,
    }


def _with_prefix(value: float | None) -> str:
    """A large count with an SI prefix: `1.23 G`."""
    if value is None:
        return text.DASH
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


def _span(values: Sequence[float]) -> str:
    """`12`, or `9 to 14` where seeds differ."""
    if not values:
        return text.DASH
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
