"""What the page draws: the metric over epochs and the training loss over steps, a line for every run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from subquad.report.build import Report
from subquad.report.compare import is_baseline
from subquad.report.rows import Row
from subquad.report.text import scaled, unit
from subquad.runs import Record, read_records

MAX_POINTS = 240
COLOURS = 7
CONTROL_COLOUR = COLOURS
"""The control mixer's colour, a grey that no other line has."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One run's curve.

    Attributes:
        name: its row in the table.
        colour: index of the mixer's colour.
        split: what was evaluated; "test" is dashed.
        points: (x, y), x ascending.
    """

    name: str
    colour: int
    split: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]

    @property
    def tested(self) -> bool:
        """A line is of the test split."""
        return any(line.split == "test" for line in self.lines)


@dataclass(frozen=True)
class Panel:
    """The charts of one data set."""

    dataset: str
    legend: tuple[tuple[str, int], ...]
    charts: tuple[Chart, ...]


def panels(report: Report) -> list[Panel]:
    """A panel for each data set with something to draw, in the table's order."""
    colours = _colours(report)
    datasets = dict.fromkeys(row.dataset for row in report.rows)
    found = (_panel(dataset, [row for row in report.rows if row.dataset == dataset], colours) for dataset in datasets)
    return [panel for panel in found if panel.charts]


def _colours(report: Report) -> dict[str, int]:
    """One colour per mixer label and setting, over all panels."""
    names = sorted({row.name for row in report.rows if not is_baseline(row, report.baseline)})
    colours = {name: index % COLOURS for index, name in enumerate(names)}
    return {row.name: colours.get(row.name, CONTROL_COLOUR) for row in report.rows}


def _panel(dataset: str, rows: Sequence[Row], colours: dict[str, int]) -> Panel:
    several = len({row.protocol for row in rows}) > 1
    scores: list[Line] = []
    losses: list[Line] = []
    for row in rows:
        name, colour = f"{row.name}, {row.protocol}" if several else row.name, colours[row.name]
        for records in (list(read_records(cell.folder)) for cell in row.cells):
            scores += _scores(name, colour, row, records)
            losses += _losses(name, colour, records)
    metric = rows[0].metric
    label = f"{metric} ({unit(metric)})" if unit(metric) else metric
    charts = [
        Chart(f"{dataset}: {metric} while training", "epoch", label, tuple(scores)),
        Chart(f"{dataset}: training loss", "step", "loss", tuple(losses)),
    ]
    drawn = {line.colour for line in (*scores, *losses)}
    legend = dict.fromkeys((row.name, colours[row.name]) for row in rows if colours[row.name] in drawn)
    return Panel(dataset, tuple(legend), tuple(chart for chart in charts if chart.lines))


def _scores(name: str, colour: int, row: Row, records: Sequence[Record]) -> Iterator[Line]:
    splits = dict.fromkeys(record.split for record in records if record.kind == "eval")
    for split in splits:
        points = [
            (record.epoch, scaled(record.metrics[row.metric], row.metric))
            for record in records
            if record.kind == "eval" and record.split == split and row.metric in record.metrics
        ]
        yield from _line(name, colour, split, points)


def _losses(name: str, colour: int, records: Sequence[Record]) -> Iterator[Line]:
    points = [
        (float(one.step), one.metrics["loss"]) for one in records if one.kind == "train" and "loss" in one.metrics
    ]
    yield from _line(name, colour, "train", points)


def _line(name: str, colour: int, split: str, points: Sequence[Point]) -> Iterator[Line]:
    finite = sorted(point for point in points if math.isfinite(point[1]))
    if finite:
        yield Line(name, colour, split, tuple(thin(finite)))


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points: means of neighbours, so that a noisy loss keeps its level."""
    if len(points) <= limit:
        return list(points)
    edges = [index * len(points) // limit for index in range(limit + 1)]
    groups = [points[start:end] for start, end in pairwise(edges)]
    return [(_mean(point[0] for point in group), _mean(point[1] for point in group)) for group in groups]


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
