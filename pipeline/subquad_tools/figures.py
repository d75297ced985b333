"""Pictures of the tools: a figure, the colours of its lines, its file. Matplotlib is imported when
one is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.security.disk import replacing

_DPI = 120
_NAMED = 30
"""Lines of a picture that has a legend; more would fill it."""


def new_figure(width: float, height: float) -> Any:
    """An empty Matplotlib figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> Path:
    """Write a PNG file, in a folder that is made."""
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
    return path


def shade(index: int, count: int) -> Any:
    """The colour of one of some lines that are in order, from dark to light."""
    from matplotlib import colormaps

    return colormaps["viridis"](0.9 * index / max(1, count - 1))


def as_label(text: str) -> str:
    """A text that Matplotlib prints as it is, and not as a formula."""
    return text.replace("$", r"\$")


def draw_lines(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: Path,
    xlabel: str,
    ylabel: str,
    level: float | None = None,
) -> Path:
    """A PNG file with a line for each name, and a level to compare them with.

    Args:
        lines: numbers of x and of y.
    """
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(8.4, 4.2)
    axes = figure.add_subplot()
    count = len(lines)
    for index, (name, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, marker="o", markersize=3, color=shade(index, count), label=as_label(name))
    is_whole = all(not value % 1 for x, _ in lines.values() for value in x)
    axes.xaxis.set_major_locator(MaxNLocator(integer=is_whole))
    if level is not None:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="original")
    axes.set(xlabel=as_label(xlabel), ylabel=as_label(ylabel))
    axes.grid(alpha=0.3)
    if count <= _NAMED:
        figure.legend(fontsize=6, loc="outside right upper")
    return save_figure(figure, path)
