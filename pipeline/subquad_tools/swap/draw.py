"""What `subquad swap` found, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.plugin.metric import metric_of, read_metrics
from subquad_tools.figures import as_label, new_figure, save_figure, shade
from subquad_tools.swap.text import in_words

_NAMED = 30
"""Lines of a picture that has a legend; more would fill it."""

_Line = tuple[str, Any, Any]
"""Name, and the numbers of x and y."""


def draw_swaps(found: Mapping[str, Any], out: Path) -> list[Path]:
    """PNG files of what `subquad swap` found: errors by layer, and the score by the first number
    that is varied.

    Args:
        found: what swap.json holds.
        out: folder that is there.
    """
    swaps = found["swaps"]
    name = found["metric"]
    lines: list[_Line] = []
    for swap in swaps:
        label = _name(swap["params"])
        errors = [error["relative"] for error in swap["errors"]]
        lines.append((label, range(len(errors)), errors))
    written = [_draw(lines, out / "errors.png", "layer", "error / output of the mixer")]
    number = _varied_number([swap["params"] for swap in swaps])
    if number is None:
        return written
    metric = metric_of(read_metrics(found["metrics"]), name)
    curves: dict[str, _Line] = {}
    for swap in swaps:
        others = dict(swap["params"])
        if number not in others:
            continue
        value = others.pop(number)
        label = _name(others)
        _, numbers, scores = curves.setdefault(label, (label, [], []))
        numbers.append(value)
        scores.append(metric.scaled(swap["metrics"][name]))
    lines = list(curves.values())
    path = out / "scores.png"
    level = metric.scaled(found["original"][name])
    written.append(_draw(lines, path, number, metric.with_unit, level))
    return written


def _varied_number(params: Sequence[Mapping[str, Any]]) -> str | None:
    """The first parameter that is a number and has several values."""
    for key, value in params[0].items():
        values = {other.get(key) for other in params}
        is_number = type(value) in (int, float)
        if is_number and len(values) > 1:
            return key
    return None


def _name(params: Mapping[str, Any]) -> str:
    words = in_words(params)
    return words or "defaults"


def _draw(
    lines: Sequence[_Line], path: Path, xlabel: str, ylabel: str, level: float | None = None
) -> Path:
    """A line for each name, and a level to compare them with."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(8.4, 4.2)
    axes = figure.add_subplot()
    is_whole = True
    count = len(lines)
    for index, (name, x, y) in enumerate(lines):
        label = as_label(name)
        axes.plot(x, y, marker="o", markersize=3, color=shade(index, count), label=label)
        for value in x:
            if value % 1:
                is_whole = False
    axes.xaxis.set_major_locator(MaxNLocator(integer=is_whole))
    if level is not None:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="original")
    axes.set(xlabel=as_label(xlabel), ylabel=as_label(ylabel))
    axes.grid(alpha=0.3)
    if count <= _NAMED:
        figure.legend(fontsize=6, loc="outside right upper")
    return save_figure(figure, path)
