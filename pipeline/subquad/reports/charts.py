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
from subquad.plugin.metric import Metric
from subquad.record.metrics import read_records
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
    groups = _bars_of_rows(report)
    for reference in report.references:
        metric = reference.compared
        bars = groups.get((*reference.family, metric))
        if not bars:
            continue
        low, high = reference.reach
        bar = Bar(
            name=reference.name,
            colour=BASELINE_COLOUR,
            mean=metric.scaled(reference.value),
            low=metric.scaled(low),
            high=metric.scaled(high),
            is_full=False,
        )
        # the others stay apart in a picture that shows this one too
        lowest = min(other.low for other in bars)
        highest = max(other.high for other in bars)
        reach = _FAR * (highest - lowest)
        if lowest - reach < bar.mean < highest + reach:
            bars.append(bar)
    charts = []
    for (dataset, protocol, metric), bars in groups.items():
        chart = ScoreChart(
            title=f"{dataset} ({protocol}): test {metric.label}",
            x_label=f"test {metric.with_unit}",
            bars=tuple(bars),
        )
        charts.append(chart)
    return charts


def _bars_of_rows(report: Report) -> Mapping[tuple[str, str, Metric], list[Bar]]:
    """By data set, protocol and metric."""
    colours = _colours(report)
    estimates = score_estimates(report.rows)
    groups = defaultdict[tuple[str, str, Metric], list[Bar]](list)
    for row, estimate in zip(report.rows, estimates, strict=True):
        if row.score is None:
            continue
        metric = row.compared
        mean = row.score.mean
        interval = row.interval(row.metric)
        low, high = interval or (mean, mean)
        if estimate:
            low = estimate.low
            high = estimate.high
        if metric.is_fraction:
            low = max(0.0, low)
            high = min(1.0, high)
        bar = Bar(
            name=row.name,
            colour=colours[row.name],
            mean=metric.scaled(mean),
            low=metric.scaled(low),
            high=metric.scaled(high),
            is_full=len(row.seeds) > 1,
        )
        groups[*row.family, metric].append(bar)
    return groups


def _colours(report: Report) -> defaultdict[str, str]:
    """By row name; the baseline has a grey of its own."""
    names = set[str]()
    for row in report.rows:
        if not row.is_called(report.baseline):
            names.add(row.name)
    return defaultdict(lambda: BASELINE_COLOUR, zip(sorted(names), cycle(COLOURS), strict=False))


def training_charts(report: Report) -> list[LineChart]:
    """For each data set the metric over epochs and the training loss over steps, a line for
    every run.
    """
    colours = _colours(report)
    charts: list[LineChart] = []
    for dataset, group in groupby(report.rows, key=lambda row: row.dataset):
        charts += _charts_of_dataset(dataset, list(group), colours)
    return [chart for chart in charts if chart.lines]


def _charts_of_dataset(
    dataset: str, rows: Sequence[TableRow], colours: Mapping[str, str]
) -> tuple[LineChart, LineChart]:
    marks = _marks(rows)
    protocols = {row.protocol for row in rows}
    scores: list[Line] = []
    losses: list[Line] = []
    for row in rows:
        name = row.name
        if len(protocols) > 1:
            name += f", {row.protocol}"
        colour = colours[row.name]
        for run in row.runs:
            by_split, loss = _measured(run)
            line = Line(name, colour, _thin(loss), mark=marks[run.seed])
            losses.append(line)
            for split, points in by_split.items():
                style = "dashed" if split == "test" else "line"
                scores.append(replace(line, points=_thin(points), style=style))
    drawn = _drawable(scores)
    first = rows[0].first
    metric = first.shown(first.metric)
    title = f"{dataset}: {metric.with_unit} by epoch"
    if any(line.style == "dashed" for line in drawn):
        title += " (dashed: on the test split)"
    by_epoch = LineChart(
        title=title,
        x_label="epoch",
        y_label=metric.with_unit,
        lines=drawn,
    )
    by_step = LineChart(
        title=f"{dataset}: training loss by step",
        x_label="step",
        y_label="loss",
        lines=_drawable(losses),
    )
    return by_epoch, by_step


def _measured(run: ReportedRun) -> tuple[Mapping[str, list[Point]], list[Point]]:
    """A run's metric by epoch, of each split, and its loss by step; nothing where its records are
    damaged, as its row says.
    """
    scores = defaultdict[str, list[Point]](list)
    losses: list[Point] = []
    metric = run.shown(run.metric)
    with suppress(RunError):
        for record in read_records(run.folder):
            score = record.metrics.get(run.metric)
            if record.kind == "eval" and score is not None:
                scores[record.split].append((record.epoch, metric.scaled(score)))
            loss = record.metrics.get("loss")
            if record.kind == "train" and loss is not None:
                losses.append((float(record.step), loss))
    return scores, losses


def _marks(rows: Sequence[TableRow]) -> dict[int, tuple[str, str] | None]:
    """The sign of each seed, where there are several and no more than signs."""
    seeds = set[int]()
    for row in rows:
        for run in row.runs:
            seeds.add(run.seed)
    count = len(seeds)
    if count < 2 or count > len(SIGNS):
        return dict.fromkeys(seeds)
    marks = {}
    for seed, sign in zip(sorted(seeds), SIGNS, strict=False):
        marks[seed] = (sign, f"seed {seed}")
    return marks


def _drawable(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Iterable[Point], limit: int = MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    finite = []
    for x, y in points:
        if math.isfinite(y):
            finite.append((x, y))
    finite.sort()
    count = len(finite)
    if count <= limit:
        return tuple(finite)
    starts = np.arange(limit) * count // limit
    sizes = np.diff(starts, append=count)
    means = np.add.reduceat(finite, starts) / sizes[:, None]
    return tuple(map(tuple, means.tolist()))


def curve_chart(curve: Curve) -> LineChart:
    """Test means with bars of one standard deviation, validation means, and all published
    values, evenly spaced.
    """
    metric = curve.metric
    names = {}
    values = set[str]()
    for row in curve.rows:
        name = curve.value(row)
        number, _ = in_order(name)
        names[number] = name
        values.add(name)
    published = list(printed_values(curve.rows[0], curve.key))
    for value, *_ in published:
        names.setdefault(value, f"{value:g}")
    values.update(names.values())
    in_place = sorted(values, key=in_order)
    points, errors = _points_of_rows(curve, in_place)
    comparable = _comparable(curve)
    for value, printed, *_ in published:
        x = float(in_place.index(names[value]))
        name = "published, not comparable"
        if id(printed) in comparable:
            name = "published"
        points[name].append((x, printed.value))
    lines = [replace(line, points=tuple(points[line.name])) for line in _CURVE_LINES]
    lines[0] = replace(lines[0], errors=errors)
    return LineChart(
        title=curve.title,
        x_label=curve.key,
        y_label=f"test {metric.with_unit}",
        lines=_drawable(lines),
        names=tuple(in_place),
    )


def _points_of_rows(
    curve: Curve, in_place: Sequence[str]
) -> tuple[defaultdict[str, list[Point]], tuple[float, ...]]:
    """The points of a curve's rows by the name of their line, and the heights of its bars."""
    metric = curve.metric
    points = defaultdict[str, list[Point]](list)
    errors = []
    for row in curve.rows:
        x = float(in_place.index(curve.value(row)))
        if row.score:
            mean = metric.scaled(row.score.mean)
            points["test ± sd"].append((x, mean))
            errors.append(metric.scaled(row.score.std or 0.0))
            if row.is_base:
                points["base"].append((x, mean))
        if row.validation and curve.selection == metric:
            points["validation"].append((x, metric.scaled(row.validation.mean)))
    return points, tuple(errors)


def _comparable(curve: Curve) -> set[int]:
    """The ids of the published rows that a row of the curve is comparable with."""
    found = set[int]()
    for row in curve.rows:
        for beside in published_beside(row, curve.key):
            if not beside.reasons:
                found.add(id(beside.published))
    return found
