"""The section of results: a line for each row, and for each guess without a model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from subquad.output.terminal import DASH, duration
from subquad.plugin.metric import Metric
from subquad.reports.beside import Beside
from subquad.reports.document import Section, Table
from subquad.reports.published import published_faults
from subquad.reports.references import REFERENCE_MEANING, Reference
from subquad.reports.report import Report
from subquad.reports.rows import TableRow
from subquad.reports.text import Ends, Spread, score_text

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
_PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def results_section(report: Report) -> Section:
    """The table of rows, after those of a data set and protocol their reference scores."""
    metrics = {row.compared.with_unit for row in report.rows}
    named = len(metrics) > 1
    score = "test score"
    if not named:
        score = f"test {metrics.pop()}"
    besides: dict[str, None] = {}
    units: dict[str, None] = {}
    for row in report.rows:
        for name in row.besides:
            besides[name] = None
            units[row.shown(name).with_unit] = None
    cells: list[dict[str, str]] = []
    italic: list[int] = []
    reasons = []
    for family, rows in groupby(report.rows, key=lambda row: row.family):
        for row in rows:
            cells.append(_row_cells(row, score, named, besides, in_short(report.published(row))))
            status = row.status()
            if status != row.status(reasons=False):
                reasons.append(f"{row.dataset}, {row.name} ({row.protocol}): {status}")
        for reference in report.references:
            if reference.family == family:
                italic.append(len(cells))
                cells.append(_reference_cells(reference, score, named, besides))
    return Section(
        title="Scores and costs",
        table=Table.of(cells, (score, *units, *_NUMERIC), italic),
        lines=(*reasons, *report.headlines),
        notes=tuple(_notes(report)),
    )


def _row_cells(
    row: TableRow, score: str, named: bool, besides: Iterable[str], published: str
) -> dict[str, str]:
    others = {}
    for name in besides:
        metric = row.shown(name)
        others[metric.with_unit] = _ended(metric, row.besides.get(name), row.interval(name))
    # a process's memory is mostly that of its libraries
    memory = row.peak_memory_bytes if row.first.on_gpus else None
    tokens = row.tokens_per_second
    seconds = row.seconds
    tuning = row.tuning.words if row.tuning else DASH
    parameters = DASH
    if row.parameters is not None:
        parameters = f"{row.parameters:,}"
    return {
        **row_names(row),
        "seeds": str(len(row.counted)),
        score: row_score(row, named),
        "last epoch": score_text(row.compared, row.last_score),
        **others,
        "published": published,
        "tuning": tuning,
        "status": row.status(reasons=False),
        "parameters": parameters,
        "training": duration(seconds and seconds.mean),
        "s/1000 steps": _rounded(row.seconds_per_step, 1e3),
        "tokens/s": _with_prefix(tokens and tokens.mean),
        "peak MB": _rounded(memory, 1e-6),
        "FLOPs/step": _with_prefix(row.flops_per_step),
        "best epoch": _span(row.best_epochs),
    }


def _span(values: Iterable[float]) -> str:
    """`2 to 4`: the lowest and the highest."""
    texts = [f"{value:.4g}" for value in sorted(values)]
    ends = dict.fromkeys((*texts[:1], *texts[-1:]))
    return " to ".join(ends) or DASH


def row_names(row: TableRow | Reference) -> dict[str, str]:
    return {
        "data set": row.dataset,
        "mixer": row.name,
        "protocol": row.protocol,
    }


def _reference_cells(
    reference: Reference, score: str, named: bool, besides: Iterable[str]
) -> dict[str, str]:
    metric = reference.compared
    text = _ended(metric, reference.value, reference.interval)
    if named:
        text += f" {metric.with_unit}"
    cells = row_names(reference)
    cells[score] = text
    for name in besides:
        metric = reference.shown(name)
        cells[metric.with_unit] = _ended(metric, reference.score(name), reference.given(name))
    cells["status"] = f"n = {reference.samples:,}"
    return cells


def row_score(row: TableRow, named: bool = False) -> str:
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
    text = score_text(metric, value)
    if ends:
        interval = metric.interval(*ends)
        text += f" {interval}"
    return text


def in_short(beside: Iterable[Beside]) -> str:
    return "; ".join(row.in_short for row in beside) or DASH


def _notes(report: Report) -> Iterator[str]:
    """What each protocol means, and what runs say a reader of their numbers must know, with the
    rows it is said of.
    """
    rows = report.rows
    yield from sorted({f"{row.protocol}: {row.protocol_label}" for row in rows})
    if report.match:
        for (dataset, _), group in groupby(rows, key=lambda row: row.family):
            sizes = [row.parameters for row in group if row.parameters]
            if len(sizes) > 1:
                apart = max(sizes) / min(sizes) - 1
                yield f"{dataset}: equal size, within {apart:.1%} (match: {report.match})"
    over = "95 % interval over the test samples"
    if report.references:
        intervals: dict[str, str] = {}
        for reference in report.references:
            if not reference.interval:
                continue
            metric = reference.compared
            whose = ", Wilson's" if metric.answers else ""
            intervals[metric.label] = f"{metric.label} [{over}{whose}]"
        note = f"reference: {REFERENCE_MEANING}"
        if intervals:
            shown = ", ".join(intervals.values())
            note += f": {shown}"
        yield note
    for label in {row.compared.label: None for row in rows if row.interval(row.metric)}:
        yield f"{label} of a mixer [{over}, mean over the seeds]"
    yield from _notes_of_rows(rows)
    for fault in published_faults():
        yield f"left out: {fault}"


def _notes_of_rows(rows: Sequence[TableRow]) -> Iterator[str]:
    noted = defaultdict[tuple[str, str], list[str]](list)
    of_dataset = Counter[str]()
    for row in rows:
        of_dataset[row.dataset] += 1
        for note in row.notes:
            noted[row.dataset, note].append(row.name)
    for (dataset, note), names in noted.items():
        line = f"{dataset}: {note}"
        if len(names) < of_dataset[dataset]:
            mixers = ", ".join(dict.fromkeys(names))
            line += f" ({mixers})"
        yield line


def _rounded(spread: Spread | None, factor: float) -> str:
    if spread is None:
        return DASH
    return f"{factor * spread.mean:.4g}"


def _with_prefix(value: float | None) -> str:
    """A large count with an SI prefix: `1.23 G`."""
    if value is None:
        return DASH
    for name, size in _PREFIXES.items():
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"
