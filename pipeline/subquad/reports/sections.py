"""The sections of a report: its tables, sentences and charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from subquad.errors import and_more
from subquad.output.terminal import DASH
from subquad.reports.charts import curve_chart, training_charts
from subquad.reports.compare import METHOD, Comparison
from subquad.reports.curves import CURVE_NOTE, Curve
from subquad.reports.document import ReportDocument, Section, Table
from subquad.reports.drawing import RankChart
from subquad.reports.means import Mean
from subquad.reports.overview import overview
from subquad.reports.published import source_title
from subquad.reports.reading import Report
from subquad.reports.results_section import in_short, line_names, line_score, results_section
from subquad.reports.text import Values, grouped, p_text, score_text
from subquad.reports.values import report_values

_EXAMPLE = 400
_EXAMPLE_NOTE = (
    "The first samples of the test split, each text from its beginning, by the "
    "first seed of each row. They are "
    "what data set and model give, not this report's words."
)
_RANK_METHOD = (
    "Over data sets each data set counts once, by its mean test score, and the "
    "question is about other data sets of "
    "this kind. Pairs: Wilcoxon's signed-rank test with Holm's correction over all "
    "pairs. All mixers: Friedman's test. "
    "In the picture mixers whose bars overlap are not further apart than Nemenyi's "
    "critical difference at 5 %."
)


def document_of(report: Report) -> ReportDocument:
    """The report of runs and studies."""
    values = report_values(report)
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    tables, summary = overview(report)
    return ReportDocument(
        title=f"Token mixers on {', '.join(datasets[:3])}{and_more(len(datasets) - 3)}",
        overview=tables,
        summary=summary,
        sections=tuple(_sections(report)),
        runs=report.runs,
        records=(
            *values["rows"],
            *values["references"],
            *values["means"],
            *chain.from_iterable(curve["values"] for curve in values["curves"]),
            *values["examples"],
        ),
        values=values,
    )


def _sections(report: Report) -> Iterator[Section]:
    yield results_section(report)
    if report.examples:
        yield _examples(report.examples)
    if report.means:
        yield _means(report)
    if report.rankings:
        yield _over_datasets(report)
    for curve in report.curves:
        chart = curve_chart(curve)
        yield Section(
            title=f"Varied: {curve.title}",
            table=_curve_table(curve),
            lines=(curve.sentence,),
            # what holds for all of them is said below the last
            notes=(CURVE_NOTE,) if curve is report.curves[-1] else (),
            charts=(chart,) if chart.lines else (),
        )
    if any(report.beside.values()):
        yield _published(report)
    if report.comparisons:
        numeric = ("difference", "95 % interval", "p (Holm)", "seeds")
        yield Section(
            title="Differences between mixers",
            table=Table.of(list(map(_pair_cells, report.comparisons)), numeric),
            notes=(METHOD,),
        )
    if charts := training_charts(report):
        yield Section(title="While training", charts=tuple(charts))


def _examples(examples: Sequence[Values]) -> Section:
    """The first texts of each data set, the target before what the mixers wrote."""
    cells: list[dict[str, str]] = []
    targets = []
    samples = grouped(examples, lambda text: (text["dataset"], text["sample"], text["target"]))
    for (dataset, number, target), texts in samples.items():
        targets.append(len(cells))
        said = [("target", target), *[(text["mixer"], text["answer"]) for text in texts]]
        for name, text in said:
            about = {"data set": dataset, "sample": str(number), "by": name}
            cells.append({**about, "text": _shortened(text)})
    return Section(
        title="Sample texts",
        table=Table.of(cells, ("sample",), apart=targets),
        notes=(_EXAMPLE_NOTE,),
    )


def _shortened(text: str) -> str:
    """At most so many characters; `(nothing)` for a text without any."""
    if not text.strip():
        return "(nothing)"
    return text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 2]} …"


def _means(report: Report) -> Section:
    metrics = {mean.compared.with_unit for mean in report.means}
    score = f"mean test {metrics.pop()}" if len(metrics) == 1 else "mean test score"
    ranks = {
        mean: f"{rank:.2f}"
        for ranking in report.rankings
        for mean, rank in zip(ranking.means, ranking.ranks, strict=True)
    }
    cells = [
        {
            "data sets": _over(mean),
            "mixer": mean.name,
            "protocol": mean.protocol,
            "seeds": str(mean.score.count or DASH),
            score: score_text(mean.compared, mean.score),
            "mean rank": ranks.get(mean, DASH),
        }
        for mean in report.means
    ]
    return Section(
        title="Means over data sets",
        table=Table.of(
            cells,
            ("seeds", score, "mean rank"),
            [place for place, mean in enumerate(report.means) if mean.is_reference],
        ),
        lines=tuple(ranking.sentence for ranking in report.rankings),
        charts=tuple(
            RankChart(ranking.title, ranking.mixers, ranking.ranks, ranking.critical)
            for ranking in report.rankings
        ),
    )


def _over(mean: Mean) -> str:
    """`all 9`, `8 of 9, not JapaneseVowels`, `2 of 9: ERing, Libras`."""
    known = len(mean.lines)
    unknown = len(mean.others)
    if not unknown:
        return f"all {known}"
    count = f"{known} of {known + unknown}"
    if unknown <= known:
        return f"{count}, not {', '.join(mean.others)}"
    return f"{count}: {', '.join(mean.datasets)}"


def _over_datasets(report: Report) -> Section:
    """One line per pair of mixers."""
    cells = [
        {
            "pair": f"{pair.first.name} − {pair.second.name}",
            "protocol": pair.first.protocol,
            "data sets": str(len(pair.first.lines)),
            "better on": "{} : {}".format(*pair.wins),
            "mean difference": pair.first.compared.points(pair.difference),
            "p": p_text(pair.chance.p_value),
            "p (Holm)": p_text(pair.adjusted),
            "verdict": pair.verdict,
            "notes": f"unequal tuning on {', '.join(pair.unequal)}" if pair.unequal else DASH,
        }
        for ranking in report.rankings
        for pair in ranking.pairs
    ]
    return Section(
        title="Differences over data sets",
        table=Table.of(cells, ("data sets", "better on", "mean difference", "p", "p (Holm)")),
        notes=(_RANK_METHOD,),
    )


def _curve_table(curve: Curve) -> Table:
    """One line per value of the setting, the base's marked."""
    validation = f"validation {curve.selection.with_unit}"
    test = f"test {curve.rows[0].compared.with_unit}"
    cells = [
        {
            curve.name: f"{curve.value(row)}{' (base)' if row.is_base else ''}",
            validation: score_text(curve.selection, row.validation),
            test: line_score(row),
            "seeds": str(len(row.counted)),
            "published": in_short(curve.beside[row]),
            "source": "; ".join(other.published.reference for other in curve.beside[row]) or DASH,
        }
        for row in curve.rows
    ]
    return Table.of(cells, (validation, test, "seeds"))


def _published(report: Report) -> Section:
    """One line per row and published row, with the verdict and its reasons."""
    pairs = [(row, beside) for row in report.rows for beside in report.beside[row]]
    cells = [
        {
            **line_names(row),
            "ours": line_score(row),
            "published": beside.published.printed,
            "source": f"{beside.published.model}, {beside.published.reference}",
            "verdict": beside.verdict,
            "caution": "; ".join(beside.published.cautions) or DASH,
        }
        for row, beside in pairs
    ]
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
