"""The sections of a report: its tables, sentences and charts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from subquad.errors import and_more
from subquad.output.terminal import DASH
from subquad.reports.beside import Beside, published_beside
from subquad.reports.charts import curve_chart, training_charts
from subquad.reports.compare import METHOD, Comparison
from subquad.reports.curves import CURVE_NOTE, Curve
from subquad.reports.document import ReportDocument, Section, Table
from subquad.reports.drawing import RankChart
from subquad.reports.overview import overview
from subquad.reports.published import source_title
from subquad.reports.ranks import RANK_METHOD, Ranking, p_text, rank_cells
from subquad.reports.report import ExampleTexts, Report
from subquad.reports.results_section import in_short, results_section, row_names, row_score
from subquad.reports.rows import TableRow
from subquad.reports.text import score_text
from subquad.reports.values import report_values

_EXAMPLE = 400
EXAMPLE_NOTE = (
    "The first samples of the test split, each text from its beginning, by the "
    "first seed of each row. They are "
    "what data set and model give, not this report's words."
)


def document_of(report: Report) -> ReportDocument:
    """The report of runs and studies."""
    values = report_values(report)
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    first = ", ".join(datasets[:3])
    records = [*values["rows"], *values["references"], *values["means"]]
    for curve in values["curves"]:
        records += curve["values"]
    records += values["examples"]
    tables, summary = overview(report)
    return ReportDocument(
        title=f"Token mixers on {first}{and_more(len(datasets) - 3)}",
        overview=tables,
        summary=summary,
        sections=tuple(_sections(report)),
        runs=report.runs,
        records=tuple(records),
        values=values,
    )


def _sections(report: Report) -> Iterator[Section]:
    yield results_section(report)
    if report.examples:
        yield _examples(report.examples)
    if report.means:
        yield _means(report)
    if report.rankings:
        yield _over_datasets(report.rankings)
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
    if report.comparisons:
        cells = list(map(_pair_cells, report.comparisons))
        yield Section(
            title="Differences between mixers",
            table=Table.of(cells, ("difference", "95 % interval", "p (Holm)", "seeds")),
            notes=(METHOD,),
        )
    if charts := training_charts(report):
        yield Section(title="While training", charts=tuple(charts))


def _examples(examples: Sequence[ExampleTexts]) -> Section:
    """The first texts of each data set, the target before what the mixers wrote."""
    cells: list[dict[str, str]] = []
    italic: list[int] = []
    for example in examples:
        italic.append(len(cells))
        for name, text in (("target", example.target), *example.answers):
            about = {"data set": example.dataset, "sample": str(example.number), "by": name}
            cells.append({**about, "text": _shortened(text, _EXAMPLE)})
    return Section(
        title="Sample texts",
        table=Table.of(cells, ("sample",), apart=italic),
        notes=(EXAMPLE_NOTE,),
    )


def _shortened(text: str, limit: int) -> str:
    """At most so many characters; `(nothing)` for a text without any."""
    if not text.strip():
        return "(nothing)"
    if len(text) <= limit:
        return text
    return f"{text[: limit - 2]} …"


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
        rank = DASH
        if not mean.others:
            rank = ranks.get((mean.protocol, mean.metric, mean.name), DASH)
        cells.append(
            {
                "data sets": mean.over,
                "mixer": mean.name,
                "protocol": mean.protocol,
                "seeds": str(mean.score.count or DASH),
                score: score_text(mean.compared, mean.score),
                "mean rank": rank,
            }
        )
    return Section(
        title="Means over data sets",
        table=Table.of(cells, ("seeds", score, "mean rank"), italic),
        lines=tuple(ranking.sentence for ranking in report.rankings),
        charts=tuple(
            RankChart(ranking.title, ranking.mixers, ranking.ranks, ranking.critical)
            for ranking in report.rankings
        ),
    )


def _over_datasets(rankings: Iterable[Ranking]) -> Section:
    """One line per pair of mixers."""
    cells = []
    for ranking in rankings:
        cells += [rank_cells(ranking, pair) for pair in ranking.pairs]
    return Section(
        title="Differences over data sets",
        table=Table.of(cells, ("data sets", "better on", "mean difference", "p", "p (Holm)")),
        notes=(RANK_METHOD,),
    )


def _curve_table(curve: Curve) -> Table:
    """One line per value of the setting, the base's marked."""
    validation = f"validation {curve.selection.with_unit}"
    test = f"test {curve.metric.with_unit}"
    cells = []
    for row in curve.rows:
        value = curve.value(row)
        if row.is_base:
            value += " (base)"
        beside = published_beside(row, curve.key)
        sources = [other.published.reference for other in beside]
        cells.append(
            {
                curve.name: value,
                validation: score_text(curve.selection, row.validation),
                test: row_score(row),
                "seeds": str(len(row.counted)),
                "published": in_short(beside),
                "source": "; ".join(sources) or DASH,
            }
        )
    return Table.of(cells, (validation, test, "seeds"))


def _published(pairs: Sequence[tuple[TableRow, Beside]]) -> Section:
    """One line per row and published row, with the verdict and its reasons."""
    cells = []
    for row, beside in pairs:
        number = beside.published
        source = f"{number.model}, {number.reference}"
        cells.append(
            {
                **row_names(row),
                "ours": row_score(row),
                "published": number.printed,
                "source": source,
                "verdict": beside.verdict,
                "caution": "; ".join(number.cautions) or DASH,
            }
        )
    sources = sorted({beside.published.source for _, beside in pairs})
    return Section(
        title="Beside published rows",
        table=Table.of(cells, ("ours", "published")),
        notes=tuple(f"{name}: {source_title(name)}" for name in sources),
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
