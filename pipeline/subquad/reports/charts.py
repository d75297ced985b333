"""The charts that a report has: scores and losses while training, scores along a setting, and
mean ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from math import isfinite
from statistics import fmean
from typing import NamedTuple

from subquad.errors import RunError
from subquad.record.metrics import read_records
from subquad.reports.drawing import BASELINE_COLOUR, COLOURS, Line, LineChart, Point
from subquad.reports.model import Curve, Report, TableRow
from subquad.reports.text import in_order

_MAX_POINTS = 240
_CURVE_LINES = (
    Line("test ± sd", COLOURS[0], ()),
    Line("validation", BASELINE_COLOUR, (), style="dashed"),
    Line("base", COLOURS[0], (), style="ring"),
    Line("published", COLOURS[1], (), style="full marks"),
    Line("published, not comparable", COLOURS[1], (), style="marks"),
)
"""What a chart along a setting shows."""


def training_charts(report: Report) -> list[LineChart]:
    """For each data set the metric over epochs and the training loss over steps, a line for
    every run. The baseline has a grey of its own.
    """
    names = sorted({row.name for row in report.rows if not row.is_called(report.baseline)})
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    charts = []
    points = defaultdict[str, dict[_Measured, list[Point]]](dict)
    for measured, point in _measured(report):
        points[measured.row.dataset].setdefault(measured, []).append(point)
    for dataset, of_dataset in points.items():
        protocols = {measured.row.protocol for measured in of_dataset}
        for kind in ("eval", "train"):
            found = [measured for measured in of_dataset if measured.kind == kind]
            lines = []
            for measured in found:
                name = measured.row.name
                colour = colours.get(name, BASELINE_COLOUR)
                if len(protocols) > 1:
                    name += f", {measured.row.protocol}"
                style = "dashed" if measured.split == "test" else "line"
                lines.append(Line(name, colour, _thin(of_dataset[measured]), style=style))
            x_label = "step"
            label = "loss"
            title = f"{dataset}: training loss by step"
            if kind == "eval":
                x_label = "epoch"
                run = next(iter(of_dataset)).row.first
                label = run.shown(run.metric).with_unit
                title = f"{dataset}: {label} by epoch"
                if any(measured.split == "test" for measured in found):
                    title += " (dashed: on the test split)"
            if drawn := _drawable(lines):
                charts.append(LineChart(title, x_label, label, drawn))
    return charts


class _Measured(NamedTuple):
    """What a line is of."""

    row: TableRow
    run: str
    kind: str
    split: str


def _measured(report: Report) -> Iterator[tuple[_Measured, Point]]:
    """What the records of runs hold of their metric and loss; nothing where they are damaged, as
    their row says.
    """
    for row in report.rows:
        for run in row.runs:
            with suppress(RunError):
                for record in read_records(run.folder):
                    is_loss = record.kind == "train"
                    y = record.metrics.get("loss" if is_loss else run.metric)
                    if y is not None:
                        place = (float(record.step), y)
                        if not is_loss:
                            place = (record.epoch, run.shown(run.metric).scaled(y))
                        yield _Measured(row, run.name, record.kind, str(record.split)), place


def _drawable(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Iterable[Point], limit: int = _MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    finite = sorted(point for point in points if isfinite(point[1]))
    groups = defaultdict[int, list[Point]](list)
    for number, point in enumerate(finite):
        groups[number * limit // max(limit, len(finite))].append(point)
    return tuple(
        (fmean(xs), fmean(ys)) for xs, ys in (zip(*near, strict=True) for near in groups.values())
    )


def curve_chart(curve: Curve) -> LineChart:
    """Test means with bars of one standard deviation, validation means, and all published
    values, evenly spaced.
    """
    metric = curve.rows[0].compared
    own = {in_order(curve.value(row))[0]: curve.value(row) for row in curve.rows}
    published = [(own.get(value, f"{value:g}"), printed) for value, printed in curve.printed]
    names = sorted({*map(curve.value, curve.rows), *[name for name, _ in published]}, key=in_order)
    points = defaultdict[str, list[Point]](list)
    errors = []
    comparable = set[int]()
    for row in curve.rows:
        x = float(names.index(curve.value(row)))
        if row.score:
            points["test ± sd"].append((x, metric.scaled(row.score.mean)))
            errors.append(metric.scaled(row.score.std or 0.0))
            if row.is_base:
                points["base"] = points["test ± sd"][-1:]
        if row.validation and curve.selection == metric:
            points["validation"].append((x, metric.scaled(row.validation.mean)))
        comparable |= {id(other.published) for other in curve.beside[row] if not other.reasons}
    for text, printed in published:
        name = "published" if id(printed) in comparable else "published, not comparable"
        points[name].append((float(names.index(text)), printed.value))
    lines = [replace(line, points=tuple(points[line.name])) for line in _CURVE_LINES]
    lines[0] = replace(lines[0], errors=tuple(errors))
    return LineChart(
        title=curve.title,
        x_label=curve.key,
        y_label=f"test {metric.with_unit}",
        lines=_drawable(lines),
        names=tuple(names),
    )
