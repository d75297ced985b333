"""Charts of a report, and their drawing: test scores, mean ranks, scores and losses while training and along a setting.

Matplotlib is imported when the first chart is drawn; the same chart gives the same bytes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any, Literal

from subquad.errors import RunError
from subquad.metric import Metric
from subquad.report.compare import score_estimates
from subquad.report.curves import Curve
from subquad.report.published import printed_values, published_beside
from subquad.report.ranks import Ranking
from subquad.report.report import Report
from subquad.report.rows import TableRow, in_order
from subquad.report.run import ReportedRun
from subquad.report.text import Spread
from subquad.runs import Record, read_records

MAX_POINTS = 240
_NAME_LIMIT = 28
_FAR = 3
"""A reference this many times the width of all scores away is not in their picture."""
_COLOURS = ("#0b5cad", "#c2410c", "#0a7f5a", "#a8327f", "#7a5c00", "#0b7a8a", "#6741c9")
_BASELINE_COLOUR = "#5f6873"
"""A grey that no other line has."""
_STYLES: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.3},
    "dashed": {"linewidth": 1.3, "linestyle": "--"},
    "full marks": {"linestyle": "none", "marker": "D", "markersize": 6},
    "marks": {"linestyle": "none", "marker": "D", "markersize": 6, "fillstyle": "none"},
    "ring": {"linestyle": "none", "marker": "o", "markersize": 12, "fillstyle": "none"},
}

_Point = tuple[float, float]


@dataclass(frozen=True)
class _Line:
    """One curve, or one set of marks.

    Attributes:
        name: in the legend; lines of one name have one entry.
        colour: as `#rrggbb`.
        points: (x, y), x ascending.
        errors: half the height of each point's bar; () for none.
        style: a dashed line is of other data than the rest; marks have no line; a ring surrounds another line's point.
    """

    name: str
    colour: str
    points: tuple[_Point, ...]
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
    def is_kept(self) -> bool:
        """Whether it is a file beside the page too."""
        return False

    @property
    @abstractmethod
    def description(self) -> str:
        """The chart in words, for those who do not see it."""

    @abstractmethod
    def draw(self, new_figure: Callable[..., Any]) -> Any:
        """The figure, made by `new_figure(figsize=...)`."""

    @property
    def file_name(self) -> str:
        """`recall-mine-honest-order`."""
        words = re.sub(r"[^A-Za-z0-9._-]+", "-", self.title)
        return re.sub(r"-{2,}", "-", words).strip("._-")[:150] or "chart"

    def drawn(self) -> str:
        """The chart as SVG text, without time stamps and with the same ids each time."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        plain: dict[Any, Any] = {"svg.hashsalt": "subquad", "svg.fonttype": "none", "text.parse_math": False}
        with rc_context(plain), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # the text stays text; the viewer has fonts
            stream = io.StringIO()
            self.draw(Figure).savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        return stream.getvalue()


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines over one set of axes.

    Attributes:
        names: words for x = 0, 1, ... where x is no number.
    """

    x_label: str
    y_label: str
    lines: tuple[_Line, ...]
    names: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        return bool(self.names)

    @property
    def description(self) -> str:
        if self.names:
            told = [f"{self.names[int(x)]} {y:.4g}" for x, y in self.lines[0].points]
            return f"{self.y_label} by {self.x_label}: {', '.join(told)}."
        ends = sorted({f"{line.name} {line.points[-1][1]:.4g}" for line in self.lines})
        return f"{len(self.lines)} lines, {self.y_label} over {self.x_label}. Last values: {'; '.join(ends)}."

    def draw(self, new_figure: Callable[..., Any]) -> Any:
        figure = new_figure(figsize=(5.2, 3.2), layout="constrained")
        _draw_axes(figure.subplots(), self)
        _draw_legend(figure, self.lines)
        return figure


@dataclass(frozen=True)
class _Bar:
    """A score and the ends of its interval, which are the score where nothing is known; `is_full`: over seeds too."""

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
    bars: tuple[_Bar, ...]

    @property
    def description(self) -> str:
        told = [
            f"{one.name} {one.mean:.4g}" + (f" [{one.low:.4g}, {one.high:.4g}]" if one.low < one.high else "")
            for one in self.bars
        ]
        return f"{self.x_label} with 95 % intervals: {'; '.join(told)}."

    def draw(self, new_figure: Callable[..., Any]) -> Any:
        figure = new_figure(figsize=(5.2, 1.1 + 0.26 * len(self.bars)), layout="constrained")
        axes = figure.subplots()
        for place, one in enumerate(self.bars):
            ends = [[one.mean - one.low], [one.high - one.mean]]
            full = one.colour if one.is_full else "white"
            axes.errorbar([one.mean], [place], xerr=ends, color=one.colour, fmt="o", mfc=full, markersize=5, capsize=3)
        axes.set_yticks(range(len(self.bars)), [_tail(one.name) for one in self.bars], fontsize=8)
        axes.set_ylim(len(self.bars) - 0.5, -0.5)
        axes.set_title(self.title, fontsize=10)
        axes.set_xlabel(self.x_label)
        axes.grid(axis="x", color="#e6e9ed")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        return figure


def _is_near(bar: _Bar, others: Sequence[_Bar]) -> bool:
    """Whether the others stay apart in a picture that shows this one too."""
    low, high = min((one.low for one in others), default=0.0), max((one.high for one in others), default=0.0)
    return low - _FAR * (high - low) < bar.mean < high + _FAR * (high - low)


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
        one = self.ranking
        told = ", ".join(f"{name} {rank:.2f}" for name, rank in zip(one.mixers, one.ranks, strict=True))
        return f"Mean ranks, 1 is best: {told}. Critical difference {one.critical:.2f}."

    def draw(self, new_figure: Callable[..., Any]) -> Any:
        names, ranks, groups = self.ranking.mixers, self.ranking.ranks, self.ranking.groups
        count, left = len(names), (len(names) + 1) // 2
        depth = 0.7 + 0.28 * len(groups)
        figure = new_figure(figsize=(6.4, 1.5 + 0.26 * (left + len(groups))), layout="constrained")
        axes = figure.subplots()
        self._draw_scale(axes, count)
        for number, (first, last) in enumerate(groups):
            ends = [ranks[first] - 0.03, ranks[last] + 0.03]
            axes.plot(ends, [0.45 + 0.28 * number] * 2, color=_COLOURS[1], linewidth=4, solid_capstyle="butt")
        for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
            is_left = place < left
            y = depth + 0.42 * (place if is_left else count - 1 - place)
            edge = 0.8 if is_left else count + 0.2
            axes.plot([rank, rank, edge], [0, y, y], color=_COLOURS[0], linewidth=1)
            side = "right" if is_left else "left"
            axes.text(
                edge + (-0.05 if is_left else 0.05), y, f"{_tail(name)} {rank:.2f}", ha=side, va="center", fontsize=8
            )
        return figure

    def _draw_scale(self, axes: Any, count: int) -> None:
        """The axis of ranks, and above it the critical difference as long as it is."""
        axes.plot([1, count], [0, 0], color="black", linewidth=1)
        for rank in range(1, count + 1):
            axes.plot([rank, rank], [0, -0.12], color="black", linewidth=1)
            axes.text(rank, -0.2, str(rank), ha="center", va="bottom", fontsize=8)
        axes.plot([1, 1 + self.ranking.critical], [-1.0, -1.0], color="black", linewidth=2)
        axes.text(1 + self.ranking.critical / 2, -1.1, f"CD {self.ranking.critical:.2f}", ha="center", fontsize=8)
        axes.set_title(self.title, fontsize=10)
        axes.invert_yaxis()
        axes.axis("off")


def score_charts(report: Report) -> list[ScoreChart]:
    """For each data set and protocol with a score its rows, then its references."""
    colours, estimates = _colours(report), score_estimates(report.rows)
    found: dict[tuple[str, str, Metric], list[_Bar]] = {}
    for row, one in zip(report.rows, estimates, strict=True):
        if row.score:
            metric, mean = row.compared, row.score.mean
            low, high = (one.low, one.high) if one else row.interval(row.metric) or (mean, mean)
            low, high = (max(0.0, low), min(1.0, high)) if metric.is_fraction else (low, high)
            mean, low, high = map(metric.scaled, (mean, low, high))
            bar = _Bar(row.name, colours[row.name], mean, low, high, len(row.seeds) > 1)
            found.setdefault((*row.family, metric), []).append(bar)
    for guess in report.references:
        mean, low, high = map(guess.compared.scaled, (guess.value, *guess.reach))
        bar = _Bar(guess.name, _BASELINE_COLOUR, mean, low, high, is_full=False)
        own = found.get((*guess.family, guess.compared), [])
        own += [bar] if _is_near(bar, own) else []
    return [
        ScoreChart(f"{dataset} ({protocol}): test {metric.label}", f"test {metric.with_unit}", tuple(bars))
        for (dataset, protocol, metric), bars in found.items()
    ]


def _colours(report: Report) -> defaultdict[str, str]:
    """By row name; the baseline has a grey of its own."""
    names = sorted({row.name for row in report.rows if not row.is_called(report.baseline)})
    return defaultdict(lambda: _BASELINE_COLOUR, zip(names, cycle(_COLOURS), strict=False))


def training_charts(report: Report) -> list[LineChart]:
    """For each data set the metric over epochs and the training loss over steps, a line for every run."""
    colours, charts = _colours(report), list[LineChart]()
    for dataset in dict.fromkeys(row.dataset for row in report.rows):
        rows = [row for row in report.rows if row.dataset == dataset]
        scores, losses = _training_lines(rows, colours)
        metric = rows[0].shown(rows[0].first.metric).with_unit
        dashed = " (dashed: on the test split)" if any(line.style == "dashed" for line in scores) else ""
        charts.append(LineChart(f"{dataset}: {metric} by epoch{dashed}", "epoch", metric, scores))
        charts.append(LineChart(f"{dataset}: training loss by step", "step", "loss", losses))
    return [chart for chart in charts if chart.lines]


def _training_lines(
    rows: Sequence[TableRow], colours: Mapping[str, str]
) -> tuple[tuple[_Line, ...], tuple[_Line, ...]]:
    """Scores and losses."""
    several = len({row.protocol for row in rows}) > 1
    scores, losses = list[_Line](), list[_Line]()
    for row in rows:
        name, colour = f"{row.name}, {row.protocol}" if several else row.name, colours[row.name]
        for run in row.runs:
            by_split, loss = dict[str, list[_Point]](), list[_Point]()
            for record in _records(run):
                if record.kind == "eval" and run.metric in record.metrics:
                    score = run.shown(run.metric).scaled(record.metrics[run.metric])
                    by_split.setdefault(record.split, []).append((record.epoch, score))
                elif record.kind == "train" and "loss" in record.metrics:
                    loss.append((float(record.step), record.metrics["loss"]))
            for split, points in by_split.items():
                scores.append(_Line(name, colour, _thin(points), style="dashed" if split == "test" else "line"))
            losses.append(_Line(name, colour, _thin(loss)))
    return _drawable(scores), _drawable(losses)


def _records(run: ReportedRun) -> list[Record]:
    """None where some are damaged, as its row says."""
    try:
        return list(read_records(run.folder))
    except RunError:
        return []


def _drawable(lines: Iterable[_Line]) -> tuple[_Line, ...]:
    return tuple(line for line in lines if line.points)


def _thin(points: Iterable[_Point], limit: int = MAX_POINTS) -> tuple[_Point, ...]:
    """At most `limit` finite points: means of neighbours, so that a noisy loss keeps its level."""
    finite = sorted(point for point in points if math.isfinite(point[1]))
    if len(finite) <= limit:
        return tuple(finite)
    edges = [index * len(finite) // limit for index in range(limit + 1)]
    groups = [finite[start:end] for start, end in pairwise(edges)]
    return tuple(
        (math.fsum(x for x, _ in group) / len(group), math.fsum(y for _, y in group) / len(group)) for group in groups
    )


def curve_chart(curve: Curve) -> LineChart:
    """Test means with bars of one standard deviation, validation means, and all published values, evenly spaced."""
    first, metric = curve.rows[0], curve.metric
    own = {in_order(curve.value(row))[0]: curve.value(row) for row in curve.rows}
    printed = [(own.get(value, f"{value:g}"), one) for value, one, *_ in printed_values(first, curve.key)]
    names = sorted({*map(curve.value, curve.rows), *(name for name, _ in printed)}, key=in_order)
    place = {name: float(index) for index, name in enumerate(names)}

    def means(rows: Iterable[tuple[TableRow, Spread | None]]) -> tuple[_Point, ...]:
        return tuple((place[curve.value(row)], metric.scaled(one.mean)) for row, one in rows if one)

    scores = [(row, row.score) for row in curve.rows]
    chosen_by = [(row, row.validation) for row in curve.rows if curve.selection == metric]
    errors = tuple(metric.scaled(score.std or 0.0) for _, score in scores if score)
    fair = {id(one.published) for row in curve.rows for one in published_beside(row, curve.key) if not one.reasons}
    full, empty = (
        tuple((place[name], one.value) for name, one in printed if (id(one) in fair) is is_fair)
        for is_fair in (True, False)
    )
    lines = (
        _Line("test ± sd", _COLOURS[0], means(scores), errors),
        _Line("validation", _BASELINE_COLOUR, means(chosen_by), style="dashed"),
        _Line("base", _COLOURS[0], means((row, score) for row, score in scores if row.is_base), style="ring"),
        _Line("published", _COLOURS[1], full, style="full marks"),
        _Line("published, not comparable", _COLOURS[1], empty, style="marks"),
    )
    return LineChart(curve.title, curve.key, f"test {metric.with_unit}", _drawable(lines), tuple(names))


def _draw_axes(axes: Any, chart: LineChart) -> None:
    for line in chart.lines:
        xs, ys = zip(*line.points, strict=True)
        style = dict(_STYLES[line.style])
        if len(xs) == 1 and style.get("linestyle", "-") != "none":
            style["marker"] = "o"  # a single evaluation would be invisible
        axes.plot(xs, ys, color=line.colour, **style)
        if line.errors:
            axes.errorbar(xs, ys, yerr=line.errors, color=line.colour, fmt="o", markersize=4, capsize=4)
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.grid(axis="y", color="#e6e9ed")
    axes.spines[["top", "right"]].set_visible(False)
    if chart.names:
        axes.set_xticks(range(len(chart.names)), chart.names)
        axes.margins(x=0.5 / len(chart.names))


def _draw_legend(figure: Any, lines: Sequence[_Line]) -> None:
    from matplotlib.lines import Line2D

    entries = list({line.name: line for line in reversed(lines)}.values())[::-1]
    handles = [Line2D([], [], color=line.colour, **_STYLES[line.style]) for line in entries]
    legend = figure.legend(
        handles, ["x"] * len(handles), loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    for shown, line in zip(legend.get_texts(), entries, strict=True):
        shown.set_text(line.name)  # set afterwards: Matplotlib leaves out names that begin with an underscore
