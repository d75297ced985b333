"""A report as tables and sentences, the same for every format: terminal, Markdown, LaTeX and HTML render this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subquad.metric import Metric
from subquad.report.charts import Chart, RankChart, curve_chart, score_charts, training_charts
from subquad.report.compare import METHOD, Comparison
from subquad.report.curves import CURVE_NOTE, Curve
from subquad.report.published import Beside, published_beside, published_faults, source_title
from subquad.report.ranks import RANK_METHOD, p_text, rank_cells
from subquad.report.references import REFERENCE_MEANING, Reference
from subquad.report.report import ExampleTexts, Report
from subquad.report.rows import TableRow
from subquad.report.run import ReportedRun
from subquad.report.text import DASH, SPREAD_NOTE, Spread, duration, score_text
from subquad.report.values import report_values

SCORE_NOTE = (
    "The 95 % intervals are about new seeds and, where predictions were kept, new test samples, as those of the "
    "differences are; hollow marks: about test samples only. Whether two mixers differ is not seen from an overlap of "
    "their intervals: see the differences. A reference far from all scores is in the table alone."
)
NEVER = 99
"""Rank of columns that a terminal never shows: its lines say the same."""
_REASONS = 3
_EXAMPLE = 400
_BRIEF = 160
EXAMPLE_NOTE = (
    "The first samples of the test split, each text from its beginning, by the first seed of each row. They are "
    "what data set and model give, not this report's words."
)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their names.
        lines: the cells, row by row.
        numeric: columns that are aligned right.
        ranks: columns that a terminal may leave out, those of the highest rank first, until the rest fits.
        italic: lines that are shown apart.
        prose: columns of running text.
    """

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: Collection[str]
    ranks: Mapping[str, int]
    italic: Collection[int]
    prose: Collection[str] = ()

    @property
    def note(self) -> str:
        """What a sign in it means."""
        return SPREAD_NOTE if any("±" in cell for line in self.lines for cell in line) else ""

    @staticmethod
    def of(
        rows: Sequence[Mapping[str, str]],
        numeric: Collection[str],
        ranks: Mapping[str, int] | None = None,
        italic: Collection[int] = (),
        prose: Collection[str] = (),
    ) -> Table:
        """From cells by column, in the first row's order; columns that no row fills are left out."""
        columns = tuple(name for name in rows[0] if any(row.get(name, DASH) != DASH for row in rows)) if rows else ()
        lines = tuple(tuple(row.get(name, DASH) for name in columns) for row in rows)
        return Table(columns, lines, numeric, ranks or {}, italic, prose)


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
    values = report_values(report)
    along = [value for curve in values["curves"] for value in curve["values"]]
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    shown = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if len(datasets) > 3 else "")
    return ReportDocument(
        title=f"Token mixers on {shown}",
        sections=tuple(_sections(report)),
        runs=report.runs,
        records=(*values["rows"], *values["references"], *values["means"], *along, *values["examples"]),
        values=values,
    )


def _sections(report: Report) -> Iterator[Section]:
    yield _results(report)
    if charts := score_charts(report):
        yield Section(title="Test scores", notes=(SCORE_NOTE,), charts=tuple(charts), brief=())
    if report.examples:
        yield _examples(report.examples)
    if report.means:
        yield _means(report)
    if pairs := [rank_cells(ranking, one) for ranking in report.rankings for one in ranking.pairs]:
        numeric = ("data sets", "better on", "mean difference", "p", "p (Holm)")
        table = Table.of(pairs, numeric)
        yield Section(title="Differences over data sets", table=table, notes=(RANK_METHOD,), brief=())
    for curve in report.curves:  # what holds for all of them is said below the last
        notes = (CURVE_NOTE,) if curve is report.curves[-1] else ()
        chart = curve_chart(curve)
        yield Section(
            title=f"Varied: {curve.title}",
            table=_curve_table(curve),
            lines=(curve.sentence,),
            notes=notes,
            charts=(chart,) if chart.lines else (),
        )
    if beside := [(row, one) for row in report.rows for one in report.published(row)]:
        yield _published(beside)
    if report.comparisons:  # a terminal shows the headlines instead
        numeric = ("difference", "95 % interval", "p (Holm)", "seeds")
        table = Table.of([_pair_cells(one) for one in report.comparisons], numeric)
        yield Section(title="Differences between mixers", table=table, notes=(METHOD,), brief=())
    if charts := training_charts(report):
        yield Section(title="While training", charts=tuple(charts), brief=())


def _results(report: Report) -> Section:
    """The table of rows, after those of a data set and protocol their reference scores."""
    metrics = {row.compared.with_unit for row in report.rows}
    named, besides = len(metrics) > 1, tuple(dict.fromkeys(name for row in report.rows for name in row.besides))
    score = "test score" if named else f"test {metrics.pop()}"
    cells, italic = list[dict[str, str]](), set[int]()
    for family in dict.fromkeys(row.family for row in report.rows):
        own = [row for row in report.rows if row.family == family]
        cells += [
            {**_row_cells(row, score, named, besides), "published": _in_short(report.published(row))} for row in own
        ]
        guesses = [_reference_cells(one, score, named, besides) for one in report.references if one.family == family]
        italic |= set(range(len(cells), len(cells) + len(guesses)))
        cells += guesses
    plain = all(row.status() == f"{len(row.counted)} finished" for row in report.rows)
    others = list(dict.fromkeys(row.shown(name).with_unit for row in report.rows for name in row.besides))
    numeric = ("seeds", score, "last epoch", *others, "parameters", "training", "tokens/s", "FLOPs/step", "best epoch")
    ranks = dict.fromkeys(others, 4) | {"published": NEVER, "status": 7 if plain else 1, "parameters": 3, "training": 2}
    told = [(row, row.status()) for row in report.rows]
    reasons = [
        f"{row.dataset}, {row.name} ({row.protocol}): {why}" for row, why in told if why != row.status(reasons=False)
    ]
    return Section(
        title="Results",
        table=Table.of(cells, numeric, {**ranks, "FLOPs/step": 5, "best epoch": 6}, italic),
        lines=tuple(reasons),
        headlines=report.headlines,
        notes=tuple(_notes(report)),
    )


def _row_cells(row: TableRow, score: str, named: bool, besides: Sequence[str]) -> dict[str, str]:
    low, high = min(row.best_epochs, default=None), max(row.best_epochs, default=None)
    return {
        **_named(row),
        "seeds": str(len(row.counted)),
        score: _score(row, named),
        "last epoch": score_text(row.compared, row.last_score),
        **{
            row.shown(name).with_unit: _ended(row.shown(name), row.besides.get(name), row.interval(name))
            for name in besides
        },
        "published": DASH,
        "tuning": row.tuning.words if row.tuning else DASH,
        "status": row.status(reasons=False),
        "parameters": DASH if row.parameters is None else f"{row.parameters:,}",
        "training": duration(row.seconds.mean if row.seconds else None),
        "tokens/s": _with_prefix(row.tokens_per_second and row.tokens_per_second.mean),
        "FLOPs/step": _with_prefix(row.flops_per_step),
        "best epoch": DASH if low is None else f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}",
    }


def _named(row: TableRow | Reference) -> dict[str, str]:
    return {"data set": row.dataset, "mixer": row.name, "protocol": row.protocol}


def _reference_cells(one: Reference, score: str, named: bool, besides: Sequence[str]) -> dict[str, str]:
    metric, shown = one.compared, _ended(one.compared, one.value, one.interval)
    return {
        **_named(one),
        score: f"{shown} {metric.with_unit}" if named else shown,
        **{one.shown(name).with_unit: _ended(one.shown(name), one.score(name), one.given(name)) for name in besides},
        "status": f"n = {one.samples:,}",
    }


def _score(row: TableRow, named: bool = False) -> str:
    metric = row.compared
    label = f" {metric.with_unit}" if named else ""
    best = " best on test" if row.protocol == "paper" else ""
    return _ended(metric, row.score, row.interval(row.metric)) + (f"{label}{best}" if row.score else "")


def _ended(metric: Metric, value: Spread | float | None, ends: tuple[float, float] | None) -> str:
    """`22.31 ± 0.20 [21.4, 23.1]`, with the ends of an interval over the test samples where they are known."""
    return score_text(metric, value) + (f" {metric.interval(*ends)}" if ends else "")


def _in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(one.in_short for one in beside) or DASH


def _notes(report: Report) -> Iterator[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the rows it is said of."""
    yield from sorted({f"{row.protocol}: {row.protocol_label}" for row in report.rows})
    for family in dict.fromkeys(row.family for row in report.rows) if report.match else ():
        sizes = [row.parameters for row in report.rows if row.family == family and row.parameters]
        if len(sizes) > 1:
            yield f"{family[0]}: equal size, within {max(sizes) / min(sizes) - 1:.1%} (match: {report.match})"
    if report.references:
        compared = [one.compared for one in report.references if one.interval]
        whose = {one.label: ", Wilson's" if one.answers else "" for one in compared}
        told = [f"{name} [95 % interval over the test samples{end}]" for name, end in whose.items()]
        yield ": ".join((f"reference: {REFERENCE_MEANING}", *filter(None, [", ".join(told)])))
    for name in dict.fromkeys(row.compared.label for row in report.rows if row.interval(row.metric)):
        yield f"{name} of a mixer [95 % interval over the test samples, mean over the seeds]"
    found: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for note in row.notes:
            found.setdefault((row.dataset, note), []).append(row.name)
    rows = Counter(row.dataset for row in report.rows)
    for (dataset, note), names in found.items():
        yield f"{dataset}: {note}" + ("" if len(names) == rows[dataset] else f" ({', '.join(dict.fromkeys(names))})")
    yield from (f"left out: {fault}" for fault in published_faults())


def _examples(examples: Sequence[ExampleTexts]) -> Section:
    """The first texts of each data set, the target before what the mixers wrote; on a terminal one."""
    cells = list[dict[str, str]]()
    italic = set[int]()
    for example in examples:
        about = {"data set": example.dataset, "sample": str(example.number)}
        italic.add(len(cells))
        cells.append({**about, "by": "target", "text": _shortened(example.target, _EXAMPLE)})
        for name, answer in example.answers:
            cells.append({**about, "by": name, "text": _shortened(answer, _EXAMPLE)})
    shown = [cell for cell in cells if cell["sample"] == cells[0]["sample"]]
    brief = [f"{cell['data set']}, {cell['by']}: {_shortened(cell['text'], _BRIEF)}" for cell in shown]
    return Section(
        title="Sample texts",
        table=Table.of(cells, ("sample",), italic=italic, prose=("text",)),
        notes=(EXAMPLE_NOTE,),
        brief=("Sample texts:", *brief),
    )


def _shortened(text: str, limit: int) -> str:
    """At most so many characters; `(nothing)` for a text without any."""
    if not text.strip():
        return "(nothing)"
    return text if len(text) <= limit else f"{text[: limit - 2]} …"


def _means(report: Report) -> Section:
    metrics = {one.compared.with_unit for one in report.means}
    ranks = {
        (one.protocol, one.metric, mixer): f"{rank:.2f}"
        for one in report.rankings
        for mixer, rank in zip(one.mixers, one.ranks, strict=True)
    }
    score = f"mean test {metrics.pop()}" if len(metrics) == 1 else "mean test score"
    cells = [
        {
            "data sets": one.over,
            "mixer": one.name,
            "protocol": one.protocol,
            "seeds": str(one.score.count or DASH),
            score: score_text(one.compared, one.score),
            "mean rank": DASH
            if one.others or one.is_reference
            else ranks.get((one.protocol, one.metric, one.name), DASH),
        }
        for one in report.means
    ]
    italic = [number for number, one in enumerate(report.means) if one.is_reference]
    return Section(
        title="Means over data sets",
        table=Table.of(cells, ("seeds", score, "mean rank"), italic=italic),
        lines=tuple(one.sentence for one in report.rankings),
        charts=tuple(RankChart(one.title, one) for one in report.rankings),
    )


def _curve_table(one: Curve) -> Table:
    """One line per value of the setting, the base's marked."""
    validation, test = f"validation {one.selection.with_unit}", f"test {one.metric.with_unit}"
    cells = [
        {
            one.name: f"{one.value(row)}{' (base)' if row.is_base else ''}",
            validation: score_text(one.selection, row.validation),
            test: _score(row),
            "seeds": str(len(row.counted)),
            "published": _in_short(published_beside(row, one.key)),
            "source": "; ".join(beside.published.reference for beside in published_beside(row, one.key)) or DASH,
        }
        for row in one.rows
    ]
    return Table.of(cells, (validation, test, "seeds"), {"source": NEVER})


def _published(pairs: Sequence[tuple[TableRow, Beside]]) -> Section:
    """One line per row and published row, with the verdict and its reasons."""
    cells = [
        {
            **_named(row),
            "ours": _score(row),
            "published": f"{one.published.value:g}",
            "source": f"{one.published.model}, {one.published.reference}",
            "verdict": one.verdict(),
            "caution": "; ".join(one.published.cautions) or DASH,
        }
        for row, one in pairs
    ]
    brief = tuple(
        f"{row.dataset}, {row.name} ({row.protocol}): published {one.published.value:g} ({one.published.model}, "
        f"{one.published.reference}), {one.verdict(_REASONS)}"
        for row, one in pairs
    )
    titles = tuple(f"{name}: {source_title(name)}" for name in sorted({one.published.source for _, one in pairs}))
    table = Table.of(cells, ("ours", "published"))
    return Section(title="Beside published rows", table=table, notes=titles, brief=brief)


def _pair_cells(one: Comparison) -> dict[str, str]:
    difference, interval = one.estimate_texts
    return {
        "data set": one.first.dataset,
        "pair": f"{one.first.name} − {one.second.name}",
        "protocol": one.first.protocol,
        "difference": difference,
        "95 % interval": interval,
        "p (Holm)": DASH if one.adjusted is None else p_text(one.adjusted),
        "seeds": str(one.seeds),
        "over": one.basis,
        "verdict": one.verdict,
        "notes": "; ".join(one.notes) or DASH,
    }


def _with_prefix(value: float | None) -> str:
    """A large count with an SI prefix: `1.23 G`."""
    if value is None:
        return DASH
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"
