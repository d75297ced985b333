"""Axes and colours that can be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, ListedColormap

_PALEST = 0.78
"""Least of red, green and blue, over which a line on white is not seen."""


def tidy_log(axis: Axis, limits: tuple[float, float], few: float = 20) -> None:
    """Between powers of ten 2 and 5 only, and those only where few powers are in sight.

    Args:
        few: times that the larger limit may be the smaller one.
    """
    if limits[1] >= few * limits[0]:
        axis.set_minor_locator(ticker.LogLocator(subs=range(2, 10), numticks=100))
        axis.set_minor_formatter(ticker.NullFormatter())
        return
    axis.set_minor_locator(ticker.LogLocator(subs=(2, 5), numticks=100))
    for formatted in (axis.set_minor_formatter, axis.set_major_formatter):
        formatted(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def numbered(axis: Axis, numbers: Sequence[int]) -> None:
    """Show trials by their own numbers on an axis of places among those that finished."""
    axis.set_major_locator(ticker.MaxNLocator(integer=True))
    axis.set_major_formatter(ticker.FuncFormatter(lambda place, _: _at(numbers, place)))


def _at(numbers: Sequence[int], place: float) -> str:
    return str(numbers[int(place)]) if 0 <= place < len(numbers) and place == int(place) else ""


def visible(colours: Colormap) -> Colormap:
    """A colour map without its palest part: trials there would not be seen, and they are the worst ones."""
    shades = np.asarray(colours(np.linspace(0, 1, 256)))
    return ListedColormap(shades[shades[:, :3].min(axis=1) < _PALEST].tolist())
