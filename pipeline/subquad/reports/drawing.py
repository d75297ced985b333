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
        words = re.sub(r"[^A-Za-z0-9._-]+", "-", self.title)
        return re.sub(r"-{2,}", "-", words).strip("._-")[:150] or "chart"

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
            values = [f"{self.names[int(x)]} {y:.4g}" for x, y in self.lines[0].points]
            return f"{self.y_label} by {self.x_label}: {', '.join(values)}."
        ends = sorted({f"{line.name} {line.points[-1][1]:.4g}" for line in self.lines})
        what = f"{len(self.lines)} lines, {self.y_label} over {self.x_label}"
        return f"{what}. Last values: {'; '.join(ends)}."

    def draw(self, axes: Any) -> None:
        for line in self.lines:
            xs, ys = zip(*line.points, strict=True)
            style = dict(_STYLES[line.style])
            if len(xs) == 1:  # a single evaluation would be invisible
                style.setdefault("marker", "o")
            if line.mark:
                every = max(1, len(xs) // _SIGNED)
                style |= {"marker": line.mark[0], "markersize": 4, "markevery": every}
            axes.plot(xs, ys, color=line.colour, **style)
            if line.errors:
                how = {"fmt": "o", "markersize": 4, "capsize": 4}
                axes.errorbar(xs, ys, yerr=line.errors, color=line.colour, **how)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.grid(axis="y")
        if self.names:
            axes.set_xticks(range(len(self.names)), self.names)
            axes.margins(x=0.5 / len(self.names))
        self._draw_legend(axes)

    def _draw_legend(self, axes: Any) -> None:
        from matplotlib.lines import Line2D

        entries = list({line.name: line for line in reversed(self.lines)}.values())[::-1]
        handles = [Line2D([], [], color=line.colour, **_STYLES[line.style]) for line in entries]
        names = [line.name for line in entries]
        for sign, name in dict.fromkeys(line.mark for line in self.lines if line.mark):
            signed = {"linestyle": "none", "marker": sign, "markersize": 4}
            handles.append(Line2D([], [], color=BASELINE_COLOUR, **signed))
            names.append(name)
        place = {"loc": "outside lower center", "ncols": 3, "fontsize": 8}
        legend = axes.figure.legend(handles, ["x"] * len(handles), **place)
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
        scores = [
            f"{bar.name} {bar.mean:.4g}"
            + (f" [{bar.low:.4g}, {bar.high:.4g}]" if bar.low < bar.high else "")
            for bar in self.bars
        ]
        return f"{self.x_label} with 95 % intervals: {'; '.join(scores)}."

    @property
    def size(self) -> tuple[float, float]:
        return 5.2, 1.1 + 0.26 * len(self.bars)

    def draw(self, axes: Any) -> None:
        how = {"fmt": "o", "markersize": 5, "capsize": 3}
        for place, bar in enumerate(self.bars):
            ends = [[bar.mean - bar.low], [bar.high - bar.mean]]
            face = bar.colour if bar.is_full else "white"
            axes.errorbar([bar.mean], [place], xerr=ends, color=bar.colour, mfc=face, **how)
        axes.set_yticks(range(len(self.bars)), [_tail(bar.name) for bar in self.bars], fontsize=8)
        axes.set_ylim(len(self.bars) - 0.5, -0.5)
        axes.set_xlabel(self.x_label)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)


def _tail(name: str) -> str:
    """The end of a name that is too long beside a picture, such as that of a mixer in a file."""
    return name if len(name) <= _NAME_LIMIT else f"…{name[1 - _NAME_LIMIT :]}"


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
        named = zip(ranking.mixers, ranking.ranks, strict=True)
        ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in named)
        return f"Mean ranks, 1 is best: {ranks}. Critical difference {ranking.critical:.2f}."

    @property
    def size(self) -> tuple[float, float]:
        lines = (len(self.ranking.mixers) + 1) // 2 + len(self.ranking.groups)
        return 6.4, 1.5 + 0.26 * lines

    def draw(self, axes: Any) -> None:
        names, ranks, groups = self.ranking.mixers, self.ranking.ranks, self.ranking.groups
        last = len(names) - 1
        self._draw_scale(axes)
        for number, (best, worst) in enumerate(groups):
            ends, y = [ranks[best] - 0.03, ranks[worst] + 0.03], 0.45 + 0.28 * number
            axes.plot(ends, [y, y], color=COLOURS[1], linewidth=4, solid_capstyle="butt")
        for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
            y = 0.7 + 0.28 * len(groups) + 0.42 * min(place, last - place)
            edge, text, side = (0.8, 0.75, "right")
            if place > last - place:
                edge, text, side = (last + 1.2, last + 1.25, "left")
            axes.plot([rank, rank, edge], [0, y, y], color=COLOURS[0], linewidth=1)
            axes.text(text, y, f"{_tail(name)} {rank:.2f}", ha=side, va="center", fontsize=8)

    def _draw_scale(self, axes: Any) -> None:
        """The axis of ranks, and above it the critical difference as long as it is."""
        count, critical = len(self.ranking.mixers), self.ranking.critical
        thin = {"color": "black", "linewidth": 1}
        centred = {"ha": "center", "fontsize": 8}
        axes.plot([1, count], [0, 0], **thin)
        for rank in range(1, count + 1):
            axes.plot([rank, rank], [0, -0.12], **thin)
            axes.text(rank, -0.2, str(rank), va="bottom", **centred)
        axes.plot([1, 1 + critical], [-1.0, -1.0], color="black", linewidth=2)
        axes.text(1 + critical / 2, -1.1, f"CD {critical:.2f}", **centred)
        axes.invert_yaxis()
        axes.axis("off")
