"""The sections of a report: its tables, sentences and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from subquad.errors import and_more
from subquad.output.terminal import duration
from subquad.plugin.metric import Metric
from subquad.reports.compare import METHOD
from subquad.reports.curves import CURVE_NOTE, Curve
from subquad.reports.document import ReportDocument, Section, Table
from subquad.reports.drawing import RankChart, curve_chart, training_charts
from subquad.reports.means import Mean
from subquad.reports.overview import overview
from subquad.reports.published import Beside, published_faults, source_title
from subquad.reports.reading import Report
from subquad.reports.rows import TableLine, TableRow, meanings
from subquad.reports.text import Ends, Spread, grouped, p_text, score_text
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
_REFERENCE_MEANING = "reference: a guess without a trained model, learned on TRAIN or not at all"
_PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def _with_prefix(value: float) -> str:
    """A large count with an SI prefix: `1.23 G`."""
    for name, size in _PREFIXES.items():
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


_COSTS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "parameters": ("parameters", "{:,.0f}".format),
    "training": ("seconds", duration),
    "s/1000 steps": ("seconds_per_step", lambda seconds: f"{1e3 * seconds:.4g}"),
    "tokens/s": ("tokens_per_second", _with_prefix),
    "peak MB": ("peak_memory_bytes", lambda size: f"{1e-6 * size:.4g}"),
    "FLOPs/step": ("flops_per_step", _with_prefix),
}
"""What a row costs, by the title of its column: as its runs call it, and how it is printed."""


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
    yield _results(report)
    if report.examples:
        yield _examples(report)
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
        yield _differences(report)
    if charts := training_charts(report):
        yield Section(title="While training", charts=tuple(charts))


def _results(report: Report) -> Section:
    """The table of rows, after those of a data set and protocol their reference scores."""
    metrics = {row.compared.with_unit for row in report.rows}
    named = len(metrics) > 1
    score = "test score" if named else f"test {metrics.pop()}"
    besides = {name: row for row in report.rows for name in row.besides}
    families = grouped((*report.rows, *report.references), lambda line: line.family)
    lines = list(chain.from_iterable(families.values()))
    cells = []
    for line in lines:
        scores = {score: _score(line, named)}
        if isinstance(line, TableRow):
            last = score_text(line.compared, line.last_score)
            scores = {"seeds": str(len(line.counted)), **scores, "last epoch": last}
        for name in besides:
            metric = line.first.shown(name)
            text = _ended(metric, line.besides.get(name), line.interval(name))
            scores[metric.with_unit] = text
        cells.append({**_names(line), **scores, **_facts(line, report)})
    units = {row.first.shown(name).with_unit for name, row in besides.items()}
    reasons = [
        f"{row.dataset}, {row.name} ({row.protocol}): {row.status()}"
        for row in report.rows
        if row.status() != row.status(reasons=False)
    ]
    return Section(
        title="Scores and costs",
        table=Table.of(
            cells,
            ("seeds", "last epoch", "best epoch", score, *units, *_COSTS),
            [place for place, line in enumerate(lines) if line.is_reference],
        ),
        lines=(*reasons, *report.headlines),
        notes=tuple(_notes(report)),
    )


def _facts(line: TableLine, report: Report) -> dict[str, str]:
    """What else is known of a line, beside its scores."""
    if not isinstance(line, TableRow):
        return {"status": f"n = {line.samples:,}"}
    costs = {}
    for title, (name, shown) in _COSTS.items():
        mean = line.measured(name)
        # a process's memory is mostly that of its libraries
        on_gpus = line.first.leaves.get("resources.gpus_per_worker")
        is_hidden = name == "peak_memory_bytes" and not on_gpus
        costs[title] = shown(mean.mean) if mean and not is_hidden else ""
    epochs = [f"{epoch:.4g}" for epoch in sorted(line.best_epochs)]
    return {
        "published": _in_short(report.beside[line]),
        "tuning": line.tuning.words if line.tuning else "",
        "status": line.status(reasons=False),
        **costs,
        "best epoch": " to ".join(dict.fromkeys((*epochs[:1], *epochs[-1:]))),
    }


def _names(line: TableLine) -> dict[str, str]:
    return {"data set": line.dataset, "mixer": line.name, "protocol": line.protocol}


def _score(line: TableLine, named: bool = False) -> str:
    metric = line.compared
    text = _ended(metric, line.score, line.interval(line.metric))
    if line.score and named:
        text += f" {metric.with_unit}"
    if line.score and line.protocol == "paper" and isinstance(line, TableRow):
        text += " best on test"
    return text


def _ended(metric: Metric, value: Spread | None, ends: Ends | None) -> str:
    """`22.31 ± 0.20 [21.4, 23.1]`, with the ends of an interval over the test samples where they
    are known.
    """
    text = score_text(metric, value)
    return f"{text} {metric.interval(*ends)}" if ends else text


def _in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(row.in_short for row in beside)


def _notes(report: Report) -> Iterator[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the
    rows it is said of.
    """
    rows = report.rows
    yield from meanings(rows)
    if report.match:
        for (dataset, _), group in grouped(rows, lambda row: row.family).items():
            sizes = [size.mean for row in group if (size := row.measured("parameters"))]
            if len(sizes) > 1:
                apart = max(sizes) / min(sizes) - 1
                yield f"{dataset}: equal size, within {apart:.1%} (match: {report.match})"
    over = "95 % interval over the test samples"
    if report.references:
        shown = {
            guess.compared.label: ", Wilson's" if guess.compared.answers else ""
            for guess in report.references
            if guess.interval(guess.metric)
        }
        intervals = ", ".join(f"{label} [{over}{how}]" for label, how in shown.items())
        yield f"{_REFERENCE_MEANING}{': ' if shown else ''}{intervals}"
    for label in {row.compared.label: None for row in rows if row.interval(row.metric)}:
        yield f"{label} of a mixer [{over}, mean over the seeds]"
    noted = [(row.dataset, note, row.name) for row in rows for note in row.notes]
    for (dataset, note), found in grouped(noted, lambda told: told[:2]).items():
        is_of_all = len(found) == sum(row.dataset == dataset for row in rows)
        whose = ", ".join(dict.fromkeys(name for *_, name in found))
        yield f"{dataset}: {note}" if is_of_all else f"{dataset}: {note} ({whose})"
    yield from (f"left out: {fault}" for fault in published_faults())


def _examples(report: Report) -> Section:
    """The first texts of each data set, the target before what the mixers wrote."""
    cells = []
    targets = []
    samples = grouped(
        report.examples, lambda text: (text["dataset"], text["sample"], text["target"])
    )
    for (dataset, number, target), texts in samples.items():
        targets.append(len(cells))
        for name, text in (
            ("target", target),
            *[(text["mixer"], text["answer"]) for text in texts],
        ):
            shown = text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 2]} …"
            cells.append(
                {
                    "data set": dataset,
                    "sample": str(number),
                    "by": name,
                    "text": shown if text.strip() else "(nothing)",
                }
            )
    return Section(
        title="Sample texts",
        table=Table.of(cells, ("sample",), apart=targets),
        notes=(_EXAMPLE_NOTE,),
    )


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
            "seeds": str(mean.score.count or ""),
            score: score_text(mean.compared, mean.score),
            "mean rank": ranks.get(mean, ""),
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
            "notes": f"unequal tuning on {', '.join(pair.unequal)}" if pair.unequal else "",
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
            test: _score(row),
            "seeds": str(len(row.counted)),
            "published": _in_short(curve.beside[row]),
            "source": "; ".join(other.published.reference for other in curve.beside[row]),
        }
        for row in curve.rows
    ]
    return Table.of(cells, (validation, test, "seeds"))


def _published(report: Report) -> Section:
    """One line per row and published row, with the verdict and its reasons."""
    pairs = [(row, beside) for row in report.rows for beside in report.beside[row]]
    cells = [
        {
            **_names(row),
            "ours": _score(row),
            "published": beside.published.printed,
            "source": f"{beside.published.model}, {beside.published.reference}",
            "verdict": beside.verdict,
            "caution": "; ".join(beside.published.cautions),
        }
        for row, beside in pairs
    ]
    sources = sorted({beside.published.source for _, beside in pairs})
    return Section(
        title="Beside published rows",
        table=Table.of(cells, ("ours", "published")),
        notes=tuple(f"{name}: {source_title(name)}" for name in sources),
    )


def _differences(report: Report) -> Section:
    cells = []
    for pair in report.comparisons:
        difference, interval = pair.estimate_texts
        cells.append(
            {
                "data set": pair.first.dataset,
                "pair": f"{pair.first.name} − {pair.second.name}",
                "protocol": pair.first.protocol,
                "difference": difference,
                "95 % interval": interval,
                "p (Holm)": "" if pair.adjusted is None else p_text(pair.adjusted),
                "seeds": str(pair.seeds),
                "over": pair.basis,
                "verdict": pair.verdict,
                "notes": "; ".join(pair.notes),
            }
        )
    return Section(
        title="Differences between mixers",
        table=Table.of(cells, ("difference", "95 % interval", "p (Holm)", "seeds")),
        notes=(METHOD,),
    )
