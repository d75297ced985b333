"""The kinds of charts and their drawing, as SVG: lines, test scores with intervals, mean ranks.

Matplotlib is imported when the first chart is drawn; the same chart gives the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from subquad.reports.ranks import Ranking
from subquad.reports.text import Values

_NAME_LIMIT = 28
COLOURS = ("#0b5cad", "#c2410c", "#0a7f5a", "#a8327f", "#7a5c00", "#0b7a8a", "#6741c9")
BASELINE_COLOUR = "#5f6873"
"""A grey that no other line has."""
_MARKS = {"linestyle": "none", "marker": "D", "markersize": 6}
_STYLES: dict[str, Values] = {
    "line": {"linewidth": 1.3},
    "dashed": {"linewidth": 1.3, "linestyle": "--"},
    "full marks": _MARKS,
    "marks": {**_MARKS, "fillstyle": "none"},
    "ring": {"linestyle": "none", "marker": "o", "markersize": 12, "fillstyle": "none"},
}
_ERROR_BARS = {"fmt": "o", "markersize": 4, "capsize": 4}
_SCORE_BARS = {"fmt": "o", "markersize": 5, "capsize": 3}
_LEGEND = {"loc": "outside lower center", "ncols": 3, "fontsize": 8}
_THIN = {"color": "black", "linewidth": 1}
_THICK = {"color": "black", "linewidth": 2}
_CENTRED = {"ha": "center", "fontsize": 8}
_LEADER = {"color": COLOURS[0], "linewidth": 1}
_ALIKE = {"color": COLOURS[1], "linewidth": 4, "solid_capstyle": "butt"}
"""The bar over mixers that are not further apart than the critical difference."""
SIGNS = "os^Dv*Pd"
"""Matplotlib's, that tell lines of one colour apart."""
_SIGNED = 6
"""Signs on a line, about."""
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
        mark: of a line that is one of several alike: a sign of Matplotlib's on some of its points,
            and what the legend says of it.
    """

    name: str
    colour: str
    points: tuple[Point, ...]
    errors: tuple[float, ...] = ()
    style: Literal["line", "dashed", "full marks", "marks", "ring"] = "line"
    mark: tuple[str, str] | None = None


@dataclass(frozen=True)
class Chart(ABC):
    """A picture with its words.

    Attributes:
        title: above it, and in its file's name.
    """

    title: str

    @property
    def is_kept(self) -> bool:
        """Whether it is a file beside the page too."""
        return False

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
        words = re.sub(r"[^A-Za-z0-9._]+", "-", self.title)
        name = words.strip("._-")
        return name[:150] or "chart"

    def drawn(self) -> str:
        """The chart as SVG text, without time stamps and with the same ids each time."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        stream = io.StringIO()
        with rc_context(_SETTINGS), warnings.catch_warnings():
            # the text stays text; the viewer has fonts
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure = Figure(figsize=self.size)
            axes = figure.subplots()
            self.draw(axes)
            axes.set_title(self.title)
            figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
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
    def is_kept(self) -> bool:
        return bool(self.names)

    @property
    def description(self) -> str:
        if self.names:
            values = []
            for x, y in self.lines[0].points:
                name = self.names[int(x)]
                values.append(f"{name} {y:.4g}")
            return f"{self.y_label} by {self.x_label}: {', '.join(values)}."
        last = set[str]()
        for line in self.lines:
            _, y = line.points[-1]
            last.add(f"{line.name} {y:.4g}")
        what = f"{len(self.lines)} lines, {self.y_label} over {self.x_label}"
        values = "; ".join(sorted(last))
        return f"{what}. Last values: {values}."

    def draw(self, axes: Any) -> None:
        for line in self.lines:
            self._draw_line(axes, line)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.grid(axis="y")
        count = len(self.names)
        if count:
            axes.set_xticks(range(count), self.names)
            axes.margins(x=0.5 / count)
        self._draw_legend(axes)

    def _draw_line(self, axes: Any, line: Line) -> None:
        xs, ys = zip(*line.points, strict=True)
        style = dict(_STYLES[line.style])
        if len(xs) == 1:  # a single evaluation would be invisible
            style.setdefault("marker", "o")
        if line.mark:
            sign, _ = line.mark
            every = max(1, len(xs) // _SIGNED)
            style |= {"marker": sign, "markersize": 4, "markevery": every}
        axes.plot(xs, ys, color=line.colour, **style)
        if line.errors:
            axes.errorbar(xs, ys, yerr=line.errors, color=line.colour, **_ERROR_BARS)

    def _draw_legend(self, axes: Any) -> None:
        from matplotlib.lines import Line2D

        entries: dict[str, Line2D] = {}
        for line in self.lines:
            if line.name not in entries:
                style = _STYLES[line.style]
                entries[line.name] = Line2D([], [], color=line.colour, **style)
        names = list(entries)
        handles = list(entries.values())
        marks = dict.fromkeys(line.mark for line in self.lines if line.mark)
        for sign, name in marks:
            style = {"linestyle": "none", "marker": sign, "markersize": 4}
            handles.append(Line2D([], [], color=BASELINE_COLOUR, **style))
            names.append(name)
        unset = ["x"] * len(names)
        legend = axes.figure.legend(handles, unset, **_LEGEND)
        for shown, name in zip(legend.get_texts(), names, strict=True):
            # set afterwards: Matplotlib leaves out names that begin with an underscore
            shown.set_text(name)


@dataclass(frozen=True)
class Bar:
    """A score and the ends of its interval, which are the score where nothing is known;
    `is_full`: over seeds too.
    """

    name: str
    colour: str
    mean: float
    low: float
    high: float
    is_full: bool = True


@dataclass(frozen=True)
class ScoreChart(Chart):
    """Test scores of one data set and protocol with their intervals, one below the other."""

    x_label: str
    bars: tuple[Bar, ...]

    @property
    def description(self) -> str:
        scores = []
        for bar in self.bars:
            score = f"{bar.name} {bar.mean:.4g}"
            if bar.low < bar.high:
                score += f" [{bar.low:.4g}, {bar.high:.4g}]"
            scores.append(score)
        return f"{self.x_label} with 95 % intervals: {'; '.join(scores)}."

    @property
    def size(self) -> tuple[float, float]:
        height = 1.1 + 0.26 * len(self.bars)
        return 5.2, height

    def draw(self, axes: Any) -> None:
        names = []
        for place, bar in enumerate(self.bars):
            below = bar.mean - bar.low
            above = bar.high - bar.mean
            ends = [[below], [above]]
            face = bar.colour if bar.is_full else "white"
            style = {"color": bar.colour, "mfc": face, **_SCORE_BARS}
            axes.errorbar([bar.mean], [place], xerr=ends, **style)
            names.append(_tail(bar.name))
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(self.x_label)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)


def _tail(name: str) -> str:
    """The end of a name that is too long beside a picture, such as that of a mixer in a file."""
    if len(name) <= _NAME_LIMIT:
        return name
    return f"…{name[1 - _NAME_LIMIT :]}"


@dataclass(frozen=True)
class RankChart(Chart):
    """A critical-difference diagram. Reference: Demsar, 2006, figure 1."""

    ranking: Ranking

    @property
    def is_kept(self) -> bool:
        return True

    @property
    def description(self) -> str:
        ranks = []
        for name, rank in zip(self.ranking.mixers, self.ranking.ranks, strict=True):
            ranks.append(f"{name} {rank:.2f}")
        critical = f"Critical difference {self.ranking.critical:.2f}."
        return f"Mean ranks, 1 is best: {', '.join(ranks)}. {critical}"

    @property
    def size(self) -> tuple[float, float]:
        mixers = len(self.ranking.mixers)
        on_each_side = (mixers + 1) // 2
        lines = on_each_side + len(self.ranking.groups)
        height = 1.5 + 0.26 * lines
        return 6.4, height

    def draw(self, axes: Any) -> None:
        self._draw_scale(axes)
        ranks = self.ranking.ranks
        groups = self.ranking.groups
        for number, (best, worst) in enumerate(groups):
            y = 0.45 + 0.28 * number
            left = ranks[best] - 0.03
            right = ranks[worst] + 0.03
            axes.plot([left, right], [y, y], **_ALIKE)
        highest = 0.7 + 0.28 * len(groups)
        last = len(ranks) - 1
        for place, name in enumerate(self.ranking.mixers):
            rank = ranks[place]
            from_right = last - place
            y = highest + 0.42 * min(place, from_right)
            edge = 0.8
            text = {"x": 0.75, "ha": "right"}
            if place > from_right:
                edge = last + 1.2
                text = {"x": last + 1.25, "ha": "left"}
            axes.plot([rank, rank, edge], [0, y, y], **_LEADER)
            label = f"{_tail(name)} {rank:.2f}"
            axes.text(y=y, s=label, va="center", fontsize=8, **text)

    def _draw_scale(self, axes: Any) -> None:
        """The axis of ranks, and above it the critical difference as long as it is."""
        last = len(self.ranking.mixers)
        axes.plot([1, last], [0, 0], **_THIN)
        for rank in range(1, last + 1):
            axes.plot([rank, rank], [0, -0.12], **_THIN)
            axes.text(rank, -0.2, str(rank), va="bottom", **_CENTRED)
        critical = self.ranking.critical
        end = 1 + critical
        middle = 1 + critical / 2
        axes.plot([1, end], [-1.0, -1.0], **_THICK)
        axes.text(middle, -1.1, f"CD {critical:.2f}", **_CENTRED)
        axes.invert_yaxis()
        axes.axis("off")
