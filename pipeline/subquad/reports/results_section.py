"""The section of results: a line for each row, and for each guess without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from subquad.output.terminal import DASH, duration
from subquad.plugin.metric import Metric
from subquad.reports.document import Section, Table
from subquad.reports.published import Beside, published_faults
from subquad.reports.reading import Report
from subquad.reports.rows import Reference, TableLine, TableRow, meanings
from subquad.reports.text import Ends, Spread, grouped, score_text

_REFERENCE_MEANING = "a guess without a trained model, learned on TRAIN or not at all"
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


def results_section(report: Report) -> Section:
    """The table of rows, after those of a data set and protocol their reference scores."""
    metrics = {row.compared.with_unit for row in report.rows}
    named = len(metrics) > 1
    score = "test score" if named else f"test {metrics.pop()}"
    besides = {name: row for row in report.rows for name in row.besides}
    lines: list[TableLine] = []
    for family, rows in groupby(report.rows, key=lambda row: row.family):
        lines += [*rows, *[guess for guess in report.references if guess.family == family]]
    cells = []
    for line in lines:
        scores = {score: line_score(line, named)}
        if isinstance(line, TableRow):
            last = score_text(line.compared, line.last_score)
            scores = {"seeds": str(len(line.counted)), **scores, "last epoch": last}
        for name in besides:
            metric = line.first.shown(name)
            is_known = isinstance(line, Reference) or name in line.first.tested[1:]
            value = line.tested(name) if is_known else None
            scores[metric.with_unit] = _ended(metric, value, line.interval(name))
        cells.append({**line_names(line), **scores, **_facts(line, report)})
    units = {row.first.shown(name).with_unit for name, row in besides.items()}
    statuses = {row: (row.status(), row.status(reasons=False)) for row in report.rows}
    reasons = [
        f"{row.dataset}, {row.name} ({row.protocol}): {status}"
        for row, (status, short) in statuses.items()
        if status != short
    ]
    return Section(
        title="Scores and costs",
        table=Table.of(
            cells,
            ("seeds", "last epoch", "best epoch", score, *units, *_COSTS),
            [place for place, line in enumerate(lines) if isinstance(line, Reference)],
        ),
        lines=(*reasons, *report.headlines),
        notes=tuple(_notes(report)),
    )


def _facts(line: TableLine, report: Report) -> dict[str, str]:
    """What else is known of a line, beside its scores."""
    if not isinstance(line, TableRow):
        return {"status": f"n = {line.samples:,}"}
    costs = dict.fromkeys(_COSTS, DASH)
    for title, (name, shown) in _COSTS.items():
        mean = line.measured(name)
        # a process's memory is mostly that of its libraries
        if mean and (line.first.on_gpus or name != "peak_memory_bytes"):
            costs[title] = shown(mean.mean)
    epochs = [f"{epoch:.4g}" for epoch in sorted(line.best_epochs)]
    return {
        "published": in_short(report.beside[line]),
        "tuning": line.tuning.words if line.tuning else DASH,
        "status": line.status(reasons=False),
        **costs,
        "best epoch": " to ".join(dict.fromkeys((*epochs[:1], *epochs[-1:]))) or DASH,
    }


def line_names(line: TableLine) -> dict[str, str]:
    return {"data set": line.dataset, "mixer": line.name, "protocol": line.protocol}


def line_score(line: TableLine, named: bool = False) -> str:
    metric = line.compared
    text = _ended(metric, line.score, line.interval(line.metric))
    if line.score and named:
        text += f" {metric.with_unit}"
    if line.score and line.protocol == "paper" and isinstance(line, TableRow):
        text += " best on test"
    return text


def _ended(metric: Metric, value: Spread | float | None, ends: Ends | None) -> str:
    """`22.31 ± 0.20 [21.4, 23.1]`, with the ends of an interval over the test samples where they
    are known.
    """
    text = score_text(metric, value)
    return f"{text} {metric.interval(*ends)}" if ends else text


def in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(row.in_short for row in beside) or DASH


def _notes(report: Report) -> Iterator[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the
    rows it is said of.
    """
    rows = report.rows
    yield from meanings(rows)
    if report.match:
        for (dataset, _), group in groupby(rows, key=lambda row: row.family):
            sizes = [size.mean for row in group if (size := row.measured("parameters"))]
            if len(sizes) > 1:
                apart = max(sizes) / min(sizes) - 1
                yield f"{dataset}: equal size, within {apart:.1%} (match: {report.match})"
    over = "95 % interval over the test samples"
    if report.references:
        meaning = f"reference: {_REFERENCE_MEANING}"
        shown = {
            f"{guess.compared.label} [{over}, Wilson's]"
            if guess.compared.answers
            else f"{guess.compared.label} [{over}]": None
            for guess in report.references
            if guess.interval(guess.metric)
        }
        yield f"{meaning}: {', '.join(shown)}" if shown else meaning
    for label in {row.compared.label: None for row in rows if row.interval(row.metric)}:
        yield f"{label} of a mixer [{over}, mean over the seeds]"
    yield from _notes_of_rows(rows)
    yield from (f"left out: {fault}" for fault in published_faults())


def _notes_of_rows(rows: Sequence[TableRow]) -> Iterator[str]:
    noted = [(row.dataset, note, row.name) for row in rows for note in row.notes]
    of_dataset = Counter(row.dataset for row in rows)
    for (dataset, note), found in grouped(noted, lambda told: told[:2]).items():
        names = [name for *_, name in found]
        is_of_some = len(names) < of_dataset[dataset]
        whose = f" ({', '.join(dict.fromkeys(names))})" if is_of_some else ""
        yield f"{dataset}: {note}{whose}"
