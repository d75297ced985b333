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
_NO_METADATA = {"Date": None, "Creator": None}

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
        name = re.sub(r"[^A-Za-z0-9._]+", "-", self.title).strip("._-")
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
            figure.savefig(stream, format="svg", metadata=_NO_METADATA)
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
            values = ", ".join([f"{self.names[int(x)]} {y:.4g}" for x, y in self.lines[0].points])
            return f"{self.y_label} by {self.x_label}: {values}."
        last = set[str]()
        for line in self.lines:
            _, y = line.points[-1]
            last.add(f"{line.name} {y:.4g}")
        values = "; ".join(sorted(last))
        what = f"{len(self.lines)} lines, {self.y_label} over {self.x_label}"
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
            every = len(xs) // _SIGNED
            style["marker"] = sign
            style["markersize"] = 4
            style["markevery"] = max(1, every)
        axes.plot(xs, ys, color=line.colour, **style)
        if line.errors:
            axes.errorbar(
                x=xs,
                y=ys,
                yerr=line.errors,
                color=line.colour,
                **_ERROR_BARS,
            )

    def _draw_legend(self, axes: Any) -> None:
        from matplotlib.lines import Line2D

        entries: dict[str, Line2D] = {}
        marks = {}
        for line in self.lines:
            if line.name not in entries:
                entries[line.name] = Line2D([], [], color=line.colour, **_STYLES[line.style])
            if line.mark:
                sign, name = line.mark
                marks[sign] = name
        names = [*entries, *marks.values()]
        handles = list(entries.values())
        for sign in marks:
            handle = Line2D(
                [],
                [],
                color=BASELINE_COLOUR,
                linestyle="none",
                marker=sign,
                markersize=4,
            )
            handles.append(handle)
        legend = axes.figure.legend(handles, ["x"] * len(names), **_LEGEND)
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
        values = "; ".join(scores)
        return f"{self.x_label} with 95 % intervals: {values}."

    @property
    def size(self) -> tuple[float, float]:
        return 5.2, 1.1 + 0.26 * len(self.bars)

    def draw(self, axes: Any) -> None:
        names = []
        for place, bar in enumerate(self.bars):
            # a bootstrap interval of equal scores leaves their mean out by rounding
            below = max(0.0, bar.mean - bar.low)
            above = max(0.0, bar.high - bar.mean)
            face = bar.colour if bar.is_full else "white"
            axes.errorbar(
                x=[bar.mean],
                y=[place],
                xerr=[[below], [above]],
                color=bar.colour,
                mfc=face,
                **_SCORE_BARS,
            )
            names.append(_tail(bar.name))
        count = len(names)
        axes.set_yticks(range(count), names, fontsize=8)
        axes.set_ylim(count - 0.5, -0.5)
        axes.set_xlabel(self.x_label)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)


def _tail(name: str) -> str:
    """The end of a name that is too long beside a picture, such as that of a mixer in a file."""
    if len(name) <= _NAME_LIMIT:
        return name
    end = name[1 - _NAME_LIMIT :]
    return f"…{end}"


@dataclass(frozen=True)
class RankChart(Chart):
    """A critical-difference diagram. Reference: Demsar, 2006, figure 1."""

    ranking: Ranking

    @property
    def is_kept(self) -> bool:
        return True

    @property
    def description(self) -> str:
        ranking = self.ranking
        parts = [
            f"{name} {rank:.2f}" for name, rank in zip(ranking.mixers, ranking.ranks, strict=True)
        ]
        ranks = ", ".join(parts)
        critical = f"Critical difference {ranking.critical:.2f}."
        return f"Mean ranks, 1 is best: {ranks}. {critical}"

    @property
    def size(self) -> tuple[float, float]:
        on_each_side = (len(self.ranking.mixers) + 1) // 2
        return 6.4, 1.5 + 0.26 * (on_each_side + len(self.ranking.groups))

    def draw(self, axes: Any) -> None:
        self._draw_scale(axes)
        ranks = self.ranking.ranks
        groups = self.ranking.groups
        for number, (best, worst) in enumerate(groups):
            y = 0.45 + 0.28 * number
            axes.plot([ranks[best] - 0.03, ranks[worst] + 0.03], [y, y], **_ALIKE)
        highest = 0.7 + 0.28 * len(groups)
        last = len(ranks) - 1
        for place, name in enumerate(self.ranking.mixers):
            rank = ranks[place]
            from_right = last - place
            y = highest + 0.42 * min(place, from_right)
            edge = 0.8
            start = 0.75
            align = "right"
            if place > from_right:
                edge = last + 1.2
                start = last + 1.25
                align = "left"
            axes.plot([rank, rank, edge], [0, y, y], **_LEADER)
            axes.text(
                x=start,
                y=y,
                s=f"{_tail(name)} {rank:.2f}",
                ha=align,
                va="center",
                fontsize=8,
            )

    def _draw_scale(self, axes: Any) -> None:
        """The axis of ranks, and above it the critical difference as long as it is."""
        last = len(self.ranking.mixers)
        axes.plot([1, last], [0, 0], **_THIN)
        tick = [0, -0.12]
        for rank in range(1, last + 1):
            axes.plot([rank, rank], tick, **_THIN)
            axes.text(rank, -0.2, str(rank), va="bottom", **_CENTRED)
        critical = self.ranking.critical
        end = 1 + critical
        middle = 1 + critical / 2
        height = -1.0
        label = f"CD {critical:.2f}"
        axes.plot([1, end], [height, height], **_THICK)
        axes.text(middle, height + 0.1, label, va="top", **_CENTRED)
        axes.invert_yaxis()
        axes.axis("off")
