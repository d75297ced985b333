"""The charts that a report has: scores and losses while training, scores along a setting, and
mean ranks; and their drawing, as SVG.

Matplotlib is imported when the first chart is drawn; the same chart gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Literal

import numpy as np
import pandas as pd

from subquad.errors import RunError
from subquad.record.metrics import read_records
from subquad.reports.curves import Curve
from subquad.reports.reading import Report
from subquad.reports.rows import TableRow
from subquad.reports.text import grouped, in_order

_NAME_LIMIT = 28
COLOURS = ("#0b5cad", "#c2410c", "#0a7f5a", "#a8327f", "#7a5c00", "#0b7a8a", "#6741c9")
_BASELINE_COLOUR = "#5f6873"
"""A grey that no other line has."""
_MARKS = {"linestyle": "none", "marker": "D", "markersize": 6}
_STROKES = {"line": "-", "dashed": "--"}
_WIDTH = 1.3
_STYLES: dict[str, dict[str, Any]] = {
    **{name: {"linewidth": _WIDTH, "linestyle": dash} for name, dash in _STROKES.items()},
    "full marks": _MARKS,
    "marks": {**_MARKS, "fillstyle": "none"},
    "ring": {"linestyle": "none", "marker": "o", "markersize": 12, "fillstyle": "none"},
}
_ERROR_BARS = {"fmt": "o", "markersize": 4, "capsize": 4}
_INTERVALS = {"fmt": "o", "markersize": 5, "capsize": 3}
_LEGEND = {"loc": "outside lower center", "ncols": 3, "fontsize": 8}
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "subquad",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "figure.constrained_layout.use": True,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e6e9ed",
    "legend.frameon": False,
}
"""Matplotlib's, of every chart."""
_NO_METADATA: dict[str, Any] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

Point = tuple[float, float]
_Place = tuple[TableRow, str, str, str]
"""What a line is of: a row, one of its runs, and the kind and the split of records."""


@dataclass(frozen=True)
class Line:
    """One curve, or one set of marks.

    Attributes:
        name: in the legend; lines of one name have one entry.
        colour: as `#rrggbb`.
        points: (x, y), x ascending.
        errors: half the height of each point's bar; () for none.
        style: a dashed line is of other data than the rest; marks have no line; a ring surrounds
            another line's point.
    """

    name: str
    colour: str
    points: tuple[Point, ...]
    errors: tuple[float, ...] = ()
    style: Literal["line", "dashed", "full marks", "marks", "ring"] = "line"


@dataclass(frozen=True)
class Chart(ABC):
    """A picture with its words.

    Attributes:
        title: above it, and in its file's name.
    """

    title: str

    @property
    @abstractmethod
    def description(self) -> str:
        """The chart in words, for those who do not see it."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 5.2, 3.2

    @abstractmethod
    def draw(self, axes: Any) -> None:
        """Draw all but the title."""

    @property
    def file_name(self) -> str:
        """`recall-mine-honest-order`."""
        return re.sub(r"[^A-Za-z0-9._]+", "-", self.title).strip("._-")[:150] or "chart"

    def drawn(self) -> str:
        """The chart as SVG text."""
        return self.saved().decode()

    def saved(self, kind: str = "svg") -> bytes:
        """The chart as SVG or PDF, without time stamps and with the same ids each time."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        stream = io.BytesIO()
        with rc_context(_SETTINGS), warnings.catch_warnings():
            # the text stays text; the viewer has fonts
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure = Figure(figsize=self.size)
            axes = figure.subplots()
            self.draw(axes)
            axes.set_title(self.title)
            figure.savefig(stream, format=kind, metadata=_NO_METADATA[kind])
        return stream.getvalue()


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines over one set of axes.

    Attributes:
        names: words for x = 0, 1, ... where x is no number.
    """

    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    names: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        if self.names:
            values = ", ".join([f"{self.names[int(x)]} {y:.4g}" for x, y in self.lines[0].points])
            return f"{self.y_label} by {self.x_label}: {values}."
        last = sorted({f"{line.name} {line.points[-1][1]:.4g}" for line in self.lines})
        lines = f"{len(self.lines)} lines, {self.y_label} over {self.x_label}"
        return f"{lines}. Last values: {'; '.join(last)}."

    def draw(self, axes: Any) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        entries: dict[str, Line2D] = {}
        strokes: list[Line] = []
        marks = defaultdict[tuple[str, str], list[Point]](list)
        for line in self.lines:
            if line.name not in entries:
                entries[line.name] = Line2D([], [], color=line.colour, **_STYLES[line.style])
            if len(line.points) > 1 and line.style in _STROKES:
                strokes.append(line)
            else:  # a single evaluation would be invisible
                marks[line.colour, line.style] += line.points
            if line.errors:
                axes.errorbar(
                    *zip(*line.points, strict=True), line.errors, color=line.colour, **_ERROR_BARS
                )
        for (colour, style), points in marks.items():
            shown = {"marker": "o", **_STYLES[style], "linestyle": "none"}
            axes.plot(*zip(*points, strict=True), color=colour, **shown)
        axes.add_collection(  # thousands of lines take a second so, and half a minute one by one
            LineCollection(
                [line.points for line in strokes],
                colors=[line.colour for line in strokes],
                linestyles=[_STROKES[line.style] for line in strokes],
                linewidths=_WIDTH,
            )
        )
        axes.autoscale_view()
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(axis="y")
        if self.names:
            axes.set_xticks(range(len(self.names)), self.names)
            axes.margins(x=0.5 / len(self.names))
        legend = axes.figure.legend(entries.values(), ["x"] * len(entries), **_LEGEND)
        for text, name in zip(legend.get_texts(), entries, strict=True):
            # set afterwards: Matplotlib leaves out names that begin with an underscore
            text.set_text(name)


@dataclass(frozen=True)
class RankChart(Chart):
    """Mean ranks, one below the other, each with half of the critical difference on either side:
    of two whose bars overlap, none is shown to be better. References: Nemenyi, 1963; Demsar, 2006.
    """

    names: tuple[str, ...]
    ranks: tuple[float, ...]
    critical: float

    @property
    def description(self) -> str:
        ranks = [f"{name} {rank:.2f}" for name, rank in zip(self.names, self.ranks, strict=True)]
        listed = ", ".join(ranks)
        return f"Mean ranks, 1 is best: {listed}. Critical difference {self.critical:.2f}."

    @property
    def size(self) -> tuple[float, float]:
        return 5.2, 1.1 + 0.26 * len(self.names)

    def draw(self, axes: Any) -> None:
        count = len(self.names)
        axes.errorbar(
            x=self.ranks, y=range(count), xerr=self.critical / 2, color=COLOURS[0], **_INTERVALS
        )
        # the end of a name that is too long, such as that of a mixer in a file
        labels = [
            name if len(name) <= _NAME_LIMIT else f"…{name[1 - _NAME_LIMIT :]}"
            for name in self.names
        ]
        axes.set_yticks(range(count), labels, fontsize=8)
        axes.set_xlabel(f"mean rank, 1 is best (critical difference {self.critical:.2f})")
        axes.set_ylim(count - 0.5, -0.5)
        axes.grid(axis="x")


_MAX_POINTS = 240
_CURVE_LINES = (
    Line("test ± sd", COLOURS[0], ()),
    Line("validation", _BASELINE_COLOUR, (), style="dashed"),
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
    for dataset, rows in grouped(report.rows, lambda row: row.dataset).items():
        measured = _measured(rows)
        protocols = {row.protocol for row, *_ in measured}
        for kind in ("eval", "train"):
            lines = []
            for (row, _, of_kind, split), points in measured.items():
                if of_kind == kind:
                    name = f"{row.name}, {row.protocol}" if len(protocols) > 1 else row.name
                    colour = colours.get(row.name, _BASELINE_COLOUR)
                    style = "dashed" if split == "test" else "line"
                    lines.append(Line(name, colour, _thin(points), style=style))
            words = (f"{dataset}: training loss by step", "step", "loss")
            if kind == "eval" and measured:
                run = next(iter(measured))[0].first
                label = run.shown(run.metric).with_unit
                dashed = " (dashed: on the test split)" * (
                    "dashed" in {line.style for line in lines}
                )
                words = (f"{dataset}: {label} by epoch{dashed}", "epoch", label)
            if drawn := _drawable(lines):
                charts.append(LineChart(*words, drawn))
    return charts


def _measured(rows: Iterable[TableRow]) -> Mapping[_Place, list[Point]]:
    """What the records of runs hold of their metric and loss; nothing where they are damaged, as
    their row says.
    """
    points = defaultdict[_Place, list[Point]](list)
    for row in rows:
        for run in row.runs:
            with suppress(RunError):
                for record in read_records(run.folder):
                    is_loss = record.kind == "train"
                    y = record.metrics.get("loss" if is_loss else run.metric)
                    if y is not None:
                        place = (float(record.step), y)
                        if not is_loss:
                            place = (record.epoch, run.shown(run.metric).scaled(y))
                        points[row, run.name, record.kind, str(record.split)].append(place)
    return points


def _drawable(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Any, limit: int = _MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    found: Any = np.asarray(points, dtype=float).reshape(-1, 2)
    found = found[np.isfinite(found[:, 1])]
    found = found[np.lexsort(found.T[::-1])]
    if len(found) > limit:
        frame: Any = pd.DataFrame(found)
        found = frame.groupby(np.arange(len(found)) * limit // len(found)).mean().to_numpy()
    return tuple(map(tuple, found.tolist()))


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
