"""A varied setting as a picture: scores over its values, inline in the page and as an SVG file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from subquad.report.sensitivity import Sensitivity, Value, order
from subquad.report.svg import HEIGHT, LEFT, RIGHT, WIDTH, Scale, grid, ticks
from subquad.report.text import Spread, scaled, unit

LEGEND = 20
"""Height of the line below the axis that says what the marks are."""
TITLE = 24
STYLE = """
text { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
.line, .bar, .ring, .mark { fill: none; stroke-width: 1.6; }
.grid { stroke: #e6e9ed; } .axis { stroke: #57606a; } .tick { fill: #57606a; }
.end { text-anchor: end; } .middle { text-anchor: middle; } text.key { fill: #57606a; font-size: 11px; }
.s0 { stroke: #0b5cad; color: #0b5cad; } .s1 { stroke: #c2410c; color: #c2410c; }
.s7 { stroke: #5f6873; color: #5f6873; }
.dot, .full { fill: currentColor; } .test { stroke-dasharray: 5 3; }
"""
"""Of a file of its own; the page has the same classes in its style sheet."""


class _Plot:
    """Places of one setting's values, evenly spaced, and of scores."""

    def __init__(self, one: Sensitivity):
        self.one = one
        printed = [_text(value, one) for value, _ in one.printed]
        self.names = sorted({*(value.text for value in one.values), *printed}, key=order)
        low_high = [end for value in one.values for end in (*_ends(value.row.score), *_ends(value.validation))]
        scores = [scaled(end, one.base.metric) for end in low_high] + [row.value for _, row in one.printed]
        self.y_ticks = ticks(scores or [0.0])
        self.x_ticks = [float(index) for index in range(len(self.names))]
        self.place = Scale([-0.5, len(self.names) - 0.5], self.y_ticks)

    def x(self, text: str) -> float:
        return float(self.place.x(self.names.index(text)))

    def y(self, score: float) -> float:
        """The place of a score in the metric's own unit."""
        return self.high(scaled(score, self.one.base.metric))

    def high(self, shown: float) -> float:
        """The place of a score as the report shows it."""
        return float(self.place.y(shown))


def draw(one: Sensitivity, identity: str) -> Markup:
    """The picture for the page; `identity` is the prefix of its element ids."""
    head = Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title {}-desc">'
        '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>'
    ).format(
        WIDTH, HEIGHT + LEGEND, identity, identity, identity, one.title, identity, describe(one)
    )  # fmt: skip
    return head + _inside(one) + Markup("</svg>")


def to_file(one: Sensitivity) -> str:
    """The picture as a file, with its style and its title in it."""
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {} {} {}" width="{}" height="{}">'
        '<title>{}</title><desc>{}</desc><style>{}</style><rect x="0" y="{}" width="{}" height="{}" fill="#ffffff"/>'
        '<text x="{}" y="-6">{}</text>'
    ).format(
        -TITLE, WIDTH, HEIGHT + LEGEND + TITLE, 2 * WIDTH, 2 * (HEIGHT + LEGEND + TITLE), one.title, describe(one),
        Markup(STYLE), -TITLE, WIDTH, HEIGHT + LEGEND + TITLE, LEFT, one.title,
    )  # fmt: skip
    return str(head + _inside(one) + Markup("</svg>\n"))


def file_names(found: Iterable[Sensitivity]) -> list[str]:
    """`listops-agf-order.svg`, each once."""
    names: list[str] = []
    for one in found:
        parts = (one.base.dataset, one.base.label, one.base.protocol if one.base.protocol != "honest" else "", one.name)
        stem = (
            re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(part for part in parts if part)).strip("._-")[:150] or "setting"
        )
        again = sum(name == stem or name.startswith(f"{stem}~") for name in names)
        names.append(f"{stem}~{again + 1}" if again else stem)
    return [f"{name}.svg" for name in names]


def describe(one: Sensitivity) -> str:
    """The test means in words, for those who do not see the picture."""
    metric = one.base.metric
    means = [
        f"{value.text}{' (base)' if value.base else ''} {scaled(value.row.score.mean, metric):.4g}"
        for value in one.values
        if value.row.score
    ]
    return f"Test {metric} by {one.key}: {', '.join(means)}."


def _inside(one: Sensitivity) -> Markup:
    plot = _Plot(one)
    metric = f"{one.base.metric} ({unit(one.base.metric)})" if unit(one.base.metric) else one.base.metric
    label = Markup('<text class="tick middle" x="{}" y="{}">{}; test {}</text>').format(
        LEFT + (WIDTH - LEFT - RIGHT) // 2, HEIGHT - 6, one.key, metric
    )
    names = dict(zip(plot.x_ticks, plot.names, strict=True))
    parts = [grid(plot.x_ticks, plot.y_ticks, plot.place, lambda tick: names[tick]), label]
    parts += [_curve(plot, "line test s7", [(value.text, value.validation) for value in one.values])]
    parts += [_curve(plot, "line s0", [(value.text, value.row.score) for value in one.values])]
    parts += [_value(plot, value) for value in one.values if value.row.score]
    parts += [_diamond(plot.x(_text(value, one)), plot.high(row.value), _full(one, row)) for value, row in one.printed]
    return Markup("").join([*parts, _legend(one)])


def _curve(plot: _Plot, style: str, points: Sequence[tuple[str, Spread | None]]) -> Markup:
    path = " ".join(f"{plot.x(text):.1f},{plot.y(score.mean):.1f}" for text, score in points if score)
    return Markup('<polyline class="{}" points="{}"/>').format(style, path) if path else Markup("")


def _value(plot: _Plot, value: Value) -> Markup:
    """A dot with its error bar; around that of the base a ring."""
    assert value.row.score is not None
    x, y = plot.x(value.text), plot.y(value.row.score.mean)
    bar = Markup("")
    if value.row.score.std is not None:
        low, high = (plot.y(end) for end in _ends(value.row.score))
        bar = Markup('<path class="bar s0" d="M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}h8M{:.1f} {:.1f}h8"/>').format(
            x, low, high, x - 4, low, x - 4, high
        )
    ring = Markup('<circle class="ring s0" cx="{:.1f}" cy="{:.1f}" r="7"/>').format(x, y) if value.base else Markup("")
    return bar + ring + _dot(x, y)


def _dot(x: float, y: float) -> Markup:
    return Markup('<circle class="dot s0" cx="{:.1f}" cy="{:.1f}" r="3.2"/>').format(x, y)


def _diamond(x: float, y: float, full: bool) -> Markup:
    style = "mark s1 full" if full else "mark s1"
    return Markup('<path class="{}" d="M{:.1f} {:.1f}l5 5l-5 5l-5 -5z"/>').format(style, x, y - 5)


def _full(one: Sensitivity, row: object) -> bool:
    """Whether a published point may be held against ours."""
    return any(beside.published is row and not beside.reasons for value in one.values for beside in value.published)


def _legend(one: Sensitivity) -> Markup:
    y = HEIGHT + LEGEND - 8
    parts = [_dot(LEFT, y - 4), _key(LEFT + 8, y, "test ± sd")]
    parts += [Markup('<circle class="ring s0" cx="{}" cy="{}" r="6"/>').format(132, y - 4), _key(142, y, "base")]
    if any(value.validation for value in one.values):
        parts += [Markup('<path class="line test s7" d="M178 {}h18"/>').format(y - 4), _key(200, y, "validation")]
    if one.printed:
        comparable = any(_full(one, row) for _, row in one.printed)
        words = "published (full: comparable)" if comparable else "published, not comparable"
        parts += [_diamond(272, y - 4, comparable), _key(281, y, words)]
    return Markup("").join(parts)


def _key(x: float, y: float, words: str) -> Markup:
    return Markup('<text class="key" x="{}" y="{}">{}</text>').format(x, y, words)


def _ends(score: Spread | None) -> tuple[float, ...]:
    if score is None:
        return ()
    return (score.mean - (score.std or 0.0), score.mean + (score.std or 0.0))


def _text(value: float, one: Sensitivity) -> str:
    """A published value as our own are written, where one of ours is equal."""
    return next((known.text for known in one.values if order(known.text)[0] == value), f"{value:g}")
