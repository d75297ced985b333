"""The kinds of charts and their drawing, as SVG: lines, and mean ranks.

Matplotlib is imported when the first chart is drawn; the same chart gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

_NAME_LIMIT = 28
COLOURS = ("#0b5cad", "#c2410c", "#0a7f5a", "#a8327f", "#7a5c00", "#0b7a8a", "#6741c9")
BASELINE_COLOUR = "#5f6873"
"""A grey that no other line has."""
_MARKS = {"linestyle": "none", "marker": "D", "markersize": 6}
_STYLES: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.3},
    "dashed": {"linewidth": 1.3, "linestyle": "--"},
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
        what = f"{len(self.lines)} lines, {self.y_label} over {self.x_label}"
        return f"{what}. Last values: {'; '.join(last)}."

    def draw(self, axes: Any) -> None:
        for line in self.lines:
            self._draw_line(axes, line)
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(axis="y")
        if self.names:
            axes.set_xticks(range(len(self.names)), self.names)
            axes.margins(x=0.5 / len(self.names))
        self._draw_legend(axes)

    def _draw_line(self, axes: Any, line: Line) -> None:
        xs, ys = zip(*line.points, strict=True)
        style = dict(_STYLES[line.style])
        if len(xs) == 1:  # a single evaluation would be invisible
            style.setdefault("marker", "o")
        axes.plot(xs, ys, color=line.colour, **style)
        if line.errors:
            axes.errorbar(xs, ys, line.errors, color=line.colour, **_ERROR_BARS)

    def _draw_legend(self, axes: Any) -> None:
        from matplotlib.lines import Line2D

        entries: dict[str, Line2D] = {}
        for line in self.lines:
            if line.name not in entries:
                entries[line.name] = Line2D([], [], color=line.colour, **_STYLES[line.style])
        legend = axes.figure.legend(entries.values(), ["x"] * len(entries), **_LEGEND)
        for shown, name in zip(legend.get_texts(), entries, strict=True):
            # set afterwards: Matplotlib leaves out names that begin with an underscore
            shown.set_text(name)


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
        critical = f"Critical difference {self.critical:.2f}."
        return f"Mean ranks, 1 is best: {', '.join(ranks)}. {critical}"

    @property
    def size(self) -> tuple[float, float]:
        return 5.2, 1.1 + 0.26 * len(self.names)

    def draw(self, axes: Any) -> None:
        count = len(self.names)
        axes.errorbar(
            x=self.ranks, y=range(count), xerr=self.critical / 2, color=COLOURS[0], **_INTERVALS
        )
        axes.set_yticks(range(count), map(_tail, self.names), fontsize=8)
        label = f"mean rank, 1 is best (critical difference {self.critical:.2f})"
        axes.set(ylim=(count - 0.5, -0.5), xlabel=label)
        axes.grid(axis="x")


def _tail(name: str) -> str:
    """The end of a name that is too long beside a picture, such as that of a mixer in a file."""
    return name if len(name) <= _NAME_LIMIT else f"…{name[1 - _NAME_LIMIT :]}"
