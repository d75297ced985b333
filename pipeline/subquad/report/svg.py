"""Line charts as inline SVG: no script, no style attribute, no request. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from subquad.report.curves import Chart, Line, Point

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 12, 38
SINGLE = 1
"""A run with one evaluation is drawn as a dot, not as a line."""


def draw(chart: Chart, identity: str) -> Markup:
    """A chart.

    Args:
        chart: what to draw; at least one line.
        identity: prefix of the element ids, unique on the page.
    """
    points = [point for line in chart.lines for point in line.points]
    x_ticks, y_ticks = ticks([x for x, _ in points]), ticks([y for _, y in points])
    place = Scale(x_ticks, y_ticks)
    parts = [_head(chart, identity), grid(x_ticks, y_ticks, place), _labels(chart)]
    parts += [_curve(line, place) for line in chart.lines]
    return Markup("").join([*parts, Markup("</svg>")])


def ticks(values: Sequence[float], wanted: int = 5) -> list[float]:
    """Round numbers that span the values, two at least."""
    low, high = min(values), max(values)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


class Scale:
    """From data to places in the drawing."""

    def __init__(self, x_ticks: Sequence[float], y_ticks: Sequence[float]):
        self._x, self._y = (x_ticks[0], x_ticks[-1]), (y_ticks[0], y_ticks[-1])

    def x(self, value: float) -> str:
        return f"{LEFT + (value - self._x[0]) / (self._x[1] - self._x[0]) * (WIDTH - LEFT - RIGHT):.1f}"

    def y(self, value: float) -> str:
        return f"{HEIGHT - BOTTOM - (value - self._y[0]) / (self._y[1] - self._y[0]) * (HEIGHT - TOP - BOTTOM):.1f}"

    def point(self, point: Point) -> str:
        return f"{self.x(point[0])},{self.y(point[1])}"


def _head(chart: Chart, identity: str) -> Markup:
    ends = sorted({f"{line.name} {line.points[-1][1]:.4g}" for line in chart.lines})
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title {}-desc">'
        '<title id="{}-title">{}</title><desc id="{}-desc">{} lines, {} over {}. Last values: {}.</desc>'
    ).format(
        WIDTH, HEIGHT, identity, identity, identity, chart.title, identity, len(chart.lines), chart.y_label,
        chart.x_label, "; ".join(ends),
    )  # fmt: skip


def grid(
    x_ticks: Sequence[float], y_ticks: Sequence[float], place: Scale, name: Callable[[float], str] | None = None
) -> Markup:
    """Lines and numbers of both axes; `name` says what stands at a place of x, if not its number."""
    name = name or _number
    floor = HEIGHT - BOTTOM
    lines = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="tick end" x="{}" y="{}">{}</text>'
        ).format(
            LEFT,
            WIDTH - RIGHT,
            place.y(tick),
            place.y(tick),
            LEFT - 6,
            f"{float(place.y(tick)) + 4:.1f}",
            _number(tick),
        )
        for tick in y_ticks
    ]
    lines += [
        Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(place.x(tick), floor + 16, name(tick))
        for tick in x_ticks
    ]
    axis = Markup('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, floor, floor)
    return Markup("").join([*lines, axis])


def _labels(chart: Chart) -> Markup:
    middle = LEFT + (WIDTH - LEFT - RIGHT) // 2
    return Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(middle, HEIGHT - 6, chart.x_label)


def _curve(line: Line, place: Scale) -> Markup:
    style = f"s{line.colour}" + (" test" if line.split == "test" else "")
    if len(line.points) == SINGLE:
        x, y = line.points[0]
        return Markup('<circle class="dot {}" cx="{}" cy="{}" r="3"/>').format(style, place.x(x), place.y(y))
    path = " ".join(place.point(point) for point in line.points)
    return Markup('<polyline class="line {}" points="{}"/>').format(style, path)


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.3g}"
    return f"{value:g}"
