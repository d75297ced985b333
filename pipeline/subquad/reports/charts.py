"""The charts that a report has: scores and losses while training, scores along a setting, and
mean ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from subquad.errors import RunError
from subquad.record.metrics import read_records
from subquad.reports.curves import Curve
from subquad.reports.drawing import BASELINE_COLOUR, COLOURS, Line, LineChart, Point
from subquad.reports.reading import Report
from subquad.reports.text import in_order

_MAX_POINTS = 240
_MEASURED = ("dataset", "row", "protocol", "run", "kind", "split", "x", "y")
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
    points: Any = pd.DataFrame(_measured(report), columns=pd.Index(_MEASURED))
    for dataset, of_dataset in points.groupby("dataset", sort=False):
        for kind in ("eval", "train"):
            found = of_dataset[of_dataset["kind"] == kind]
            lines = []
            for _, measured in found.groupby(["run", "split"], sort=False):
                first = measured.iloc[0]
                name = first["row"].name
                colour = colours.get(name, BASELINE_COLOUR)
                if of_dataset["protocol"].nunique() > 1:
                    name += f", {first['protocol']}"
                style = "dashed" if first["split"] == "test" else "line"
                lines.append(Line(name, colour, _thin(measured), style=style))
            x_label = "step"
            label = "loss"
            title = f"{dataset}: training loss by step"
            if kind == "eval":
                x_label = "epoch"
                run = of_dataset["row"].iloc[0].first
                label = run.shown(run.metric).with_unit
                title = f"{dataset}: {label} by epoch"
                if "test" in set(found["split"]):
                    title += " (dashed: on the test split)"
            if drawn := _drawable(lines):
                charts.append(LineChart(title, x_label, label, drawn))
    return charts


def _measured(report: Report) -> Iterator[tuple[Any, ...]]:
    """What the records of runs hold of their metric and loss; nothing where they are damaged, as
    their row says.
    """
    for row in report.rows:
        for run in row.runs:
            about = (row.dataset, row, row.protocol, run.name)
            with suppress(RunError):
                for record in read_records(run.folder):
                    is_loss = record.kind == "train"
                    y = record.metrics.get("loss" if is_loss else run.metric)
                    if y is not None:
                        place = (float(record.step), y)
                        if not is_loss:
                            place = (record.epoch, run.shown(run.metric).scaled(y))
                        yield (*about, record.kind, str(record.split), *place)


def _drawable(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Any, limit: int = _MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    frame: Any = pd.DataFrame(points, columns=pd.Index(("x", "y")))
    finite = frame[np.isfinite(frame["y"])].sort_values(["x", "y"])
    groups = np.arange(len(finite)) * limit // max(limit, len(finite))
    return tuple(finite.groupby(groups).mean().itertuples(index=False, name=None))


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
