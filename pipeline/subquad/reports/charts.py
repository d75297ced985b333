"""The charts that a report has: test scores, scores and losses while training and along a
setting.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, groupby

import numpy as np

from subquad.errors import RunError
from subquad.metric import Metric
from subquad.records import read_records
from subquad.reports.beside import printed_values, published_beside
from subquad.reports.compare import score_estimates
from subquad.reports.curves import Curve
from subquad.reports.drawing import (
    BASELINE_COLOUR,
    COLOURS,
    SIGNS,
    Bar,
    Line,
    LineChart,
    Point,
    ScoreChart,
)
from subquad.reports.report import Report
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, in_order

MAX_POINTS = 240
_FAR = 3
"""A reference this many times the width of all scores away is not in their picture."""
_CURVE_LINES = (
    Line("test ± sd", COLOURS[0], ()),
    Line("validation", BASELINE_COLOUR, (), style="dashed"),
    Line("base", COLOURS[0], (), style="ring"),
    Line("published", COLOURS[1], (), style="full marks"),
    Line("published, not comparable", COLOURS[1], (), style="marks"),
)
"""What a chart along a setting shows."""


def score_charts(report: Report) -> list[ScoreChart]:
    """For each data set and protocol with a score its rows, then its references."""
    colours = _colours(report)
    estimates = score_estimates(report.rows)
    groups = defaultdict[tuple[str, str, Metric], list[Bar]](list)
    for row, estimate in zip(report.rows, estimates, strict=True):
        if row.score is None:
            continue
        metric = row.compared
        mean = row.score.mean
        low, high = row.interval(row.metric) or (mean, mean)
        if estimate:
            low, high = estimate.low, estimate.high
        if metric.is_fraction:
            low = max(0.0, low)
            high = min(1.0, high)
        ends = map(metric.scaled, (mean, low, high))
        bar = Bar(row.name, colours[row.name], *ends, is_full=len(row.seeds) > 1)
        groups[*row.family, metric].append(bar)
    for guess in report.references:
        metric = guess.compared
        bars = groups.get((*guess.family, metric))
        if not bars:
            continue
        ends = map(metric.scaled, (guess.value, *guess.reach))
        bar = Bar(guess.name, BASELINE_COLOUR, *ends, is_full=False)
        # the others stay apart in a picture that shows this one too
        low = min(other.low for other in bars)
        high = max(other.high for other in bars)
        reach = _FAR * (high - low)
        if low - reach < bar.mean < high + reach:
            bars.append(bar)
    charts = []
    for (dataset, protocol, metric), bars in groups.items():
        title = f"{dataset} ({protocol}): test {metric.label}"
        charts.append(ScoreChart(title, f"test {metric.with_unit}", tuple(bars)))
    return charts


def _colours(report: Report) -> defaultdict[str, str]:
    """By row name; the baseline has a grey of its own."""
    names = {row.name for row in report.rows if not row.is_called(report.baseline)}
    coloured = zip(sorted(names), cycle(COLOURS), strict=False)
    return defaultdict(lambda: BASELINE_COLOUR, coloured)


def training_charts(report: Report) -> list[LineChart]:
    """For each data set the metric over epochs and the training loss over steps, a line for
    every run.
    """
    colours = _colours(report)
    charts: list[LineChart] = []
    for dataset, group in groupby(report.rows, key=lambda row: row.dataset):
        rows = list(group)
        marks = _marks(rows)
        protocols = {row.protocol for row in rows}
        scores: list[Line] = []
        losses: list[Line] = []
        for row in rows:
            name = row.name
            if len(protocols) > 1:
                name += f", {row.protocol}"
            for run in row.runs:
                line = Line(name, colours[row.name], (), mark=marks[run.seed])
                by_split, loss = _measured(run)
                losses.append(replace(line, points=_thin(loss)))
                for split, points in by_split.items():
                    style = "dashed" if split == "test" else "line"
                    scores.append(replace(line, points=_thin(points), style=style))
        drawn = _drawable(scores)
        first = rows[0].first
        metric = first.shown(first.metric).with_unit
        title = f"{dataset}: {metric} by epoch"
        if any(line.style == "dashed" for line in drawn):
            title += " (dashed: on the test split)"
        charts.append(LineChart(title, "epoch", metric, drawn))
        title = f"{dataset}: training loss by step"
        charts.append(LineChart(title, "step", "loss", _drawable(losses)))
    return [chart for chart in charts if chart.lines]


def _measured(run: ReportedRun) -> tuple[Mapping[str, list[Point]], list[Point]]:
    """A run's metric by epoch, of each split, and its loss by step; nothing where its records are
    damaged, as its row says.
    """
    scores = defaultdict[str, list[Point]](list)
    losses: list[Point] = []
    metric = run.shown(run.metric)
    with suppress(RunError):
        for record in read_records(run.folder):
            if record.kind == "eval" and run.metric in record.metrics:
                score = metric.scaled(record.metrics[run.metric])
                scores[record.split].append((record.epoch, score))
            if record.kind == "train" and "loss" in record.metrics:
                loss = record.metrics["loss"]
                losses.append((float(record.step), loss))
    return scores, losses


def _marks(rows: Sequence[TableRow]) -> dict[int, tuple[str, str] | None]:
    """The sign of each seed, where there are several and no more than signs."""
    seeds = set[int]()
    for row in rows:
        seeds |= {run.seed for run in row.runs}
    if not 1 < len(seeds) <= len(SIGNS):
        return dict.fromkeys(seeds)
    marks = {}
    for seed, sign in zip(sorted(seeds), SIGNS, strict=False):
        marks[seed] = (sign, f"seed {seed}")
    return marks


def _drawable(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Iterable[Point], limit: int = MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    finite = sorted(point for point in points if math.isfinite(point[1]))
    count = len(finite)
    if count <= limit:
        return tuple(finite)
    starts = np.arange(limit) * count // limit
    sizes = np.diff(starts, append=count)
    sums = np.add.reduceat(finite, starts)
    means = sums / sizes[:, None]
    return tuple(map(tuple, means.tolist()))


def curve_chart(curve: Curve) -> LineChart:
    """Test means with bars of one standard deviation, validation means, and all published
    values, evenly spaced.
    """
    metric = curve.metric
    names = {}
    for row in curve.rows:
        name = curve.value(row)
        number, _ = in_order(name)
        names[number] = name
    published = list(printed_values(curve.rows[0], curve.key))
    for value, *_ in published:
        names.setdefault(value, f"{value:g}")
    in_place = sorted({*map(curve.value, curve.rows), *names.values()}, key=in_order)
    points = defaultdict[str, list[Point]](list)
    errors: list[float] = []
    for row in curve.rows:
        x = float(in_place.index(curve.value(row)))
        if row.score:
            mean = (x, metric.scaled(row.score.mean))
            points["test ± sd"].append(mean)
            errors.append(metric.scaled(row.score.std or 0.0))
            if row.is_base:
                points["base"].append(mean)
        if row.validation and curve.selection == metric:
            mean = (x, metric.scaled(row.validation.mean))
            points["validation"].append(mean)
    comparable = _comparable(curve)
    for value, printed, *_ in published:
        x = float(in_place.index(names[value]))
        name = "published" if id(printed) in comparable else "published, not comparable"
        points[name].append((x, printed.value))
    lines = [replace(line, points=tuple(points[line.name])) for line in _CURVE_LINES]
    lines[0] = replace(lines[0], errors=tuple(errors))
    y_label = f"test {metric.with_unit}"
    return LineChart(curve.title, curve.key, y_label, _drawable(lines), tuple(in_place))


def _comparable(curve: Curve) -> set[int]:
    """The ids of the published rows that a row of the curve is comparable with."""
    found = set[int]()
    for row in curve.rows:
        for beside in published_beside(row, curve.key):
            if not beside.reasons:
                found.add(id(beside.published))
    return found
