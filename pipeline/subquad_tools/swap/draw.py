"""What `subquad swap` found, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.metric import metric_of, read_metrics
from subquad_tools.figures import as_label, new_figure, save_figure, shade
from subquad_tools.swap.text import in_words

_NAMED = 30
"""Lines of a picture that has a legend; more would fill it."""

_Line = tuple[str, Sequence[float], Sequence[float]]
"""Name, x and y."""


def draw_swaps(found: Mapping[str, Any], out: Path) -> list[Path]:
    """PNG files of what `subquad swap` found: errors by layer, and the score by the first number
    that is varied.

    Args:
        found: what swap.json holds.
        out: folder that is there.
    """
    swaps, name = found["swaps"], found["metric"]
    lines: list[_Line] = []
    for swap in swaps:
        errors = [error["relative"] for error in swap["errors"]]
        lines.append((_name(swap["params"]), range(len(errors)), errors))
    written = [_draw(lines, out / "errors.png", "layer", "error / output of the mixer")]
    number = _varied_number([swap["params"] for swap in swaps])
    if number is None:
        return written
    metric = metric_of(read_metrics(found["metrics"]), name)
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for swap in swaps:
        others = dict(swap["params"])
        if number in others:
            value = others.pop(number)
            numbers, scores = curves.setdefault(_name(others), ([], []))
            numbers.append(value)
            scores.append(metric.scaled(swap["metrics"][name]))
    level = metric.scaled(found["original"][name])
    lines = [(label, *points) for label, points in curves.items()]
    return [*written, _draw(lines, out / "scores.png", number, metric.with_unit, level)]


def _varied_number(params: Sequence[Mapping[str, Any]]) -> str | None:
    """The first parameter that is a number and has several values."""
    for key, value in params[0].items():
        values = {other.get(key) for other in params}
        if len(values) > 1 and type(value) in (int, float):
            return key
    return None


def _name(params: Mapping[str, Any]) -> str:
    return in_words(params) or "defaults"


def _draw(
    lines: Sequence[_Line], path: Path, xlabel: str, ylabel: str, level: float | None = None
) -> Path:
    """A line for each name, and a level to compare them with."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(8.4, 4.2)
    axes = figure.add_subplot()
    for index, (name, x, y) in enumerate(lines):
        colour = shade(index, len(lines))
        axes.plot(x, y, marker="o", markersize=3, color=colour, label=as_label(name))
    whole = all(float(value).is_integer() for _, x, _ in lines for value in x)
    axes.xaxis.set_major_locator(MaxNLocator(integer=whole))
    if level is not None:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="original")
    axes.set_xlabel(as_label(xlabel))
    axes.set_ylabel(as_label(ylabel))
    axes.grid(alpha=0.3)
    if len(lines) <= _NAMED:
        figure.legend(fontsize=6, loc="outside right upper")
    return save_figure(figure, path)
