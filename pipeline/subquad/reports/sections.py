"""The sections of a report: its tables, sentences and charts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from subquad.metric import Metric
from subquad.reports.charts import curve_chart, score_charts, training_charts
from subquad.reports.compare import METHOD, Comparison
from subquad.reports.curves import CURVE_NOTE, Curve
from subquad.reports.document import NEVER, ReportDocument, Section, Table
from subquad.reports.drawing import RankChart
from subquad.reports.published import Beside, published_beside, published_faults, source_title
from subquad.reports.ranks import RANK_METHOD, p_text, rank_cells
from subquad.reports.references import REFERENCE_MEANING, Reference
from subquad.reports.report import ExampleTexts, Report
from subquad.reports.rows import TableRow
from subquad.reports.text import Ends, Spread, score_text
from subquad.reports.values import report_values
from subquad.terminal import DASH, duration

SCORE_NOTE = (
    "The 95 % intervals are about new seeds and, where predictions were kept, new "
    "test samples, as those of the "
    "differences are; hollow marks: about test samples only. Whether two mixers "
    "differ is not seen from an overlap of "
    "their intervals: see the differences. A reference far from all scores is in the table alone."
)
_RANKS = {
    "published": NEVER,
    "s/1000 steps": NEVER,
    "peak MB": NEVER,
    "best epoch": 6,
    "FLOPs/step": 5,
    "parameters": 3,
    "training": 2,
}
_NUMERIC = (
    "seeds",
    "last epoch",
    "parameters",
    "training",
    "s/1000 steps",
    "tokens/s",
    "peak MB",
    "FLOPs/step",
    "best epoch",
)
"""Of the table of results, with scores."""
_REASONS = 3
_EXAMPLE = 400
_BRIEF = 160
EXAMPLE_NOTE = (
    "The first samples of the test split, each text from its beginning, by the "
    "first seed of each row. They are "
    "what data set and model give, not this report's words."
)


def document_of(report: Report) -> ReportDocument:
    """The report of runs and studies."""
    values = report_values(report)
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    more = f" and {len(datasets) - 3} more" if len(datasets) > 3 else ""
    records = [*values["rows"], *values["references"], *values["means"]]
    for curve in values["curves"]:
        records += curve["values"]
    return ReportDocument(
        title=f"Token mixers on {', '.join(datasets[:3])}{more}",
        sections=tuple(_sections(report)),
        runs=report.runs,
        records=(*records, *values["examples"]),
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
    over_datasets = []
    for ranking in report.rankings:
        over_datasets += [rank_cells(ranking, pair) for pair in ranking.pairs]
    if over_datasets:
        numeric = ("data sets", "better on", "mean difference", "p", "p (Holm)")
        table = Table.of(over_datasets, numeric)
        title = "Differences over data sets"
        yield Section(title=title, table=table, notes=(RANK_METHOD,), brief=())
    for curve in report.curves:
        # what holds for all of them is said below the last
        notes = (CURVE_NOTE,) if curve is report.curves[-1] else ()
        chart = curve_chart(curve)
        yield Section(
            title=f"Varied: {curve.title}",
            table=_curve_table(curve),
            lines=(curve.sentence,),
            notes=notes,
            charts=(chart,) if chart.lines else (),
        )
    beside = []
    for row in report.rows:
        beside += [(row, published) for published in report.published(row)]
    if beside:
        yield _published(beside)
    if report.comparisons:  # a terminal shows the headlines instead
        cells = list(map(_pair_cells, report.comparisons))
        table = Table.of(cells, ("difference", "95 % interval", "p (Holm)", "seeds"))
        title = "Differences between mixers"
        yield Section(title=title, table=table, notes=(METHOD,), brief=())
    if charts := training_charts(report):
        yield Section(title="While training", charts=tuple(charts), brief=())


def _results(report: Report) -> Section:
    """The table of rows, after those of a data set and protocol their reference scores."""
    rows = report.rows
    metrics = {row.compared.with_unit for row in rows}
    named = len(metrics) > 1
    score = "test score" if named else f"test {metrics.pop()}"
    besides: dict[str, None] = {}
    units: dict[str, int] = {}
    for row in rows:
        besides |= dict.fromkeys(row.besides)
        units |= {row.shown(name).with_unit: 4 for name in row.besides}
    cells: list[dict[str, str]] = []
    italic: list[int] = []
    for family in dict.fromkeys(row.family for row in rows):
        for row in rows:
            if row.family == family:
                published = _in_short(report.published(row))
                cells.append(_row_cells(row, score, named, besides, published))
        for reference in report.references:
            if reference.family == family:
                italic.append(len(cells))
                cells.append(_reference_cells(reference, score, named, besides))
    is_usual = True
    reasons = []
    for row in rows:
        is_usual &= row.status() == f"{len(row.counted)} finished"
        if row.status() != row.status(reasons=False):
            reasons.append(f"{row.dataset}, {row.name} ({row.protocol}): {row.status()}")
    ranks = units | _RANKS | {"status": 7 if is_usual else 1}
    return Section(
        title="Results",
        table=Table.of(cells, (score, *units, *_NUMERIC), ranks, italic),
        lines=tuple(reasons),
        headlines=report.headlines,
        notes=tuple(_notes(report)),
    )


def _row_cells(
    row: TableRow, score: str, named: bool, besides: Iterable[str], published: str
) -> dict[str, str]:
    epochs = [f"{epoch:.4g}" for epoch in sorted(row.best_epochs)] or [DASH]
    others = {}
    for name in besides:
        metric = row.shown(name)
        others[metric.with_unit] = _ended(metric, row.besides.get(name), row.interval(name))
    # a process's memory is mostly that of its libraries
    memory = row.peak_memory_bytes if row.first.on_gpus else None
    tokens = row.tokens_per_second
    return {
        **_named(row),
        "seeds": str(len(row.counted)),
        score: _score(row, named),
        "last epoch": score_text(row.compared, row.last_score),
        **others,
        "published": published,
        "tuning": row.tuning.words if row.tuning else DASH,
        "status": row.status(reasons=False),
        "parameters": DASH if row.parameters is None else f"{row.parameters:,}",
        "training": duration(row.seconds.mean if row.seconds else None),
        "s/1000 steps": _rounded(row.seconds_per_step, 1e3),
        "tokens/s": _with_prefix(tokens and tokens.mean),
        "peak MB": _rounded(memory, 1e-6),
        "FLOPs/step": _with_prefix(row.flops_per_step),
        "best epoch": " to ".join(dict.fromkeys((epochs[0], epochs[-1]))),
    }


def _named(row: TableRow | Reference) -> dict[str, str]:
    return {"data set": row.dataset, "mixer": row.name, "protocol": row.protocol}


def _reference_cells(
    reference: Reference, score: str, named: bool, besides: Iterable[str]
) -> dict[str, str]:
    metric = reference.compared
    text = _ended(metric, reference.value, reference.interval)
    cells = _named(reference)
    cells[score] = f"{text} {metric.with_unit}" if named else text
    for name in besides:
        metric = reference.shown(name)
        value = reference.score(name)
        cells[metric.with_unit] = _ended(metric, value, reference.given(name))
    return {**cells, "status": f"n = {reference.samples:,}"}


def _score(row: TableRow, named: bool = False) -> str:
    metric = row.compared
    text = _ended(metric, row.score, row.interval(row.metric))
    if row.score and named:
        text += f" {metric.with_unit}"
    if row.score and row.protocol == "paper":
        text += " best on test"
    return text


def _ended(metric: Metric, value: Spread | float | None, ends: Ends | None) -> str:
    """`22.31 ± 0.20 [21.4, 23.1]`, with the ends of an interval over the test samples where they
    are known.
    """
    return score_text(metric, value) + (f" {metric.interval(*ends)}" if ends else "")


def _in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(row.in_short for row in beside) or DASH


def _notes(report: Report) -> Iterator[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the
    rows it is said of.
    """
    rows = report.rows
    yield from sorted({f"{row.protocol}: {row.protocol_label}" for row in rows})
    for family in dict.fromkeys(row.family for row in rows) if report.match else ():
        sizes = [row.parameters for row in rows if row.family == family and row.parameters]
        if len(sizes) > 1:
            apart = f"within {max(sizes) / min(sizes) - 1:.1%} (match: {report.match})"
            yield f"{family[0]}: equal size, {apart}"
    over = "95 % interval over the test samples"
    if report.references:
        intervals: dict[str, str] = {}
        for reference in report.references:
            if reference.interval:
                metric = reference.compared
                whose = ", Wilson's" if metric.answers else ""
                intervals[metric.label] = f"{metric.label} [{over}{whose}]"
        meaning = f"reference: {REFERENCE_MEANING}"
        yield f"{meaning}: {', '.join(intervals.values())}" if intervals else meaning
    labels = [row.compared.label for row in rows if row.interval(row.metric)]
    for label in dict.fromkeys(labels):
        yield f"{label} of a mixer [{over}, mean over the seeds]"
    noted = defaultdict[tuple[str, str], list[str]](list)
    for row in rows:
        for note in row.notes:
            noted[row.dataset, note].append(row.name)
    of_dataset = Counter(row.dataset for row in rows)
    for (dataset, note), names in noted.items():
        only = f" ({', '.join(dict.fromkeys(names))})"
        yield f"{dataset}: {note}{'' if len(names) == of_dataset[dataset] else only}"
    for fault in published_faults():
        yield f"left out: {fault}"


def _examples(examples: Sequence[ExampleTexts]) -> Section:
    """The first texts of each data set, the target before what the mixers wrote; on a terminal
    one.
    """
    cells: list[dict[str, str]] = []
    italic: list[int] = []
    brief = ["Sample texts:"]
    for example in examples:
        italic.append(len(cells))
        for name, text in (("target", example.target), *example.answers):
            about = {"data set": example.dataset, "sample": str(example.number), "by": name}
            cells.append({**about, "text": _shortened(text, _EXAMPLE)})
            if example.number == examples[0].number:
                brief.append(f"{example.dataset}, {name}: {_shortened(text, _BRIEF)}")
    return Section(
        title="Sample texts",
        table=Table.of(cells, ("sample",), italic=italic, prose=("text",)),
        notes=(EXAMPLE_NOTE,),
        brief=tuple(brief),
    )


def _shortened(text: str, limit: int) -> str:
    """At most so many characters; `(nothing)` for a text without any."""
    if not text.strip():
        return "(nothing)"
    return text if len(text) <= limit else f"{text[: limit - 2]} …"


def _means(report: Report) -> Section:
    metrics = {mean.compared.with_unit for mean in report.means}
    score = f"mean test {metrics.pop()}" if len(metrics) == 1 else "mean test score"
    ranks: dict[tuple[str, str, str], str] = {}
    for ranking in report.rankings:
        for mixer, rank in zip(ranking.mixers, ranking.ranks, strict=True):
            ranks[ranking.protocol, ranking.metric, mixer] = f"{rank:.2f}"
    cells: list[dict[str, str]] = []
    italic: list[int] = []
    for mean in report.means:
        if mean.is_reference:
            italic.append(len(cells))
        rank = ranks.get((mean.protocol, mean.metric, mean.name), DASH)
        cells.append(
            {
                "data sets": mean.over,
                "mixer": mean.name,
                "protocol": mean.protocol,
                "seeds": str(mean.score.count or DASH),
                score: score_text(mean.compared, mean.score),
                "mean rank": DASH if mean.others else rank,
            }
        )
    return Section(
        title="Means over data sets",
        table=Table.of(cells, ("seeds", score, "mean rank"), italic=italic),
        lines=tuple(ranking.sentence for ranking in report.rankings),
        charts=tuple(RankChart(ranking.title, ranking) for ranking in report.rankings),
    )


def _curve_table(curve: Curve) -> Table:
    """One line per value of the setting, the base's marked."""
    validation = f"validation {curve.selection.with_unit}"
    test = f"test {curve.metric.with_unit}"
    cells = []
    for row in curve.rows:
        beside = published_beside(row, curve.key)
        sources = [other.published.reference for other in beside]
        cells.append(
            {
                curve.name: f"{curve.value(row)}{' (base)' if row.is_base else ''}",
                validation: score_text(curve.selection, row.validation),
                test: _score(row),
                "seeds": str(len(row.counted)),
                "published": _in_short(beside),
                "source": "; ".join(sources) or DASH,
            }
        )
    return Table.of(cells, (validation, test, "seeds"), {"source": NEVER})


def _published(pairs: Sequence[tuple[TableRow, Beside]]) -> Section:
    """One line per row and published row, with the verdict and its reasons."""
    cells, brief = [], []
    for row, beside in pairs:
        number = beside.published
        source = f"{number.model}, {number.reference}"
        cells.append(
            {
                **_named(row),
                "ours": _score(row),
                "published": number.printed,
                "source": source,
                "verdict": beside.verdict(),
                "caution": "; ".join(number.cautions) or DASH,
            }
        )
        ours = f"{row.dataset}, {row.name} ({row.protocol})"
        verdict = beside.verdict(_REASONS)
        brief.append(f"{ours}: published {number.printed} ({source}), {verdict}")
    sources = sorted({beside.published.source for _, beside in pairs})
    return Section(
        title="Beside published rows",
        table=Table.of(cells, ("ours", "published")),
        notes=tuple(f"{name}: {source_title(name)}" for name in sources),
        brief=tuple(brief),
    )


def _pair_cells(pair: Comparison) -> dict[str, str]:
    difference, interval = pair.estimate_texts
    return {
        "data set": pair.first.dataset,
        "pair": f"{pair.first.name} − {pair.second.name}",
        "protocol": pair.first.protocol,
        "difference": difference,
        "95 % interval": interval,
        "p (Holm)": DASH if pair.adjusted is None else p_text(pair.adjusted),
        "seeds": str(pair.seeds),
        "over": pair.basis,
        "verdict": pair.verdict,
        "notes": "; ".join(pair.notes) or DASH,
    }


def _rounded(spread: Spread | None, factor: float) -> str:
    return DASH if spread is None else f"{factor * spread.mean:.4g}"


def _with_prefix(value: float | None) -> str:
    """A large count with an SI prefix: `1.23 G`."""
    if value is None:
        return DASH
    for size, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"
