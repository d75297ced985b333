"""Logarithmic axes that can be read."""

from __future__ import annotations

from matplotlib import ticker
from matplotlib.axis import Axis


def tidy_log(axis: Axis, limits: tuple[float, float]) -> None:
    """Between powers of ten 2 and 5 only, and those only where few powers are in sight."""
    few = limits[1] < 20 * limits[0]
    axis.set_minor_locator(ticker.LogLocator(subs=(2, 5) if few else range(2, 10), numticks=100))
    axis.set_minor_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}") if few else ticker.NullFormatter())
