"""Curves of `subquad bench mixers` as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad_tools.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from subquad_tools.bench.rows import Measured

_PANELS = (
    ("both_us", "microseconds per token, forward and backward"),
    ("both_ratio", "time over torch attention"),
    ("peak_mib", "peak memory added (MiB)"),
)
_SIZE = (4.4, 4.2)
_LEGEND_COLUMNS = 4
_STYLES = ("-", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
"""Of ten mixers each, which differ by colour."""


def draw_speeds(speeds: Sequence[Measured], path: Path) -> None:
    """Time, ratio and memory by length, a line for each mixer, in one PNG file.

    Args:
        speeds: those of `time_mixers`.
        path: of the file.
    """
    names = list(dict.fromkeys(speed["mixer"] for speed in speeds))
    lengths = sorted({speed["length"] for speed in speeds})
    width, height = _SIZE
    columns = len(_PANELS)
    figure = new_figure(width * columns, height + 0.18 * math.ceil(len(names) / _LEGEND_COLUMNS))
    panels = figure.subplots(1, columns)
    for panel, (key, title) in zip(panels, _PANELS, strict=True):
        for name, look in _looks(names).items():
            own = [
                (speed["length"], speed[key])
                for speed in speeds
                if speed["mixer"] == name and speed[key] is not None
            ]
            panel.plot(
                [length for length, _ in own],
                [value for _, value in own],
                label=name,
                linewidth=1.2,
                marker="o",
                markersize=3,
                **look,
            )
        _set_axes(panel, lengths)
        panel.set_title(title, fontsize=9)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=_LEGEND_COLUMNS,
        fontsize=8,
        frameon=False,
    )
    save_figure(figure, path)


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How each line looks: the first is black; a published form has its mixer's colour, dashed."""
    from matplotlib import colormaps

    mixers = list(dict.fromkeys(name.removesuffix(" published") for name in names))
    looks = {}
    for name in names:
        mixer = name.removesuffix(" published")
        place = mixers.index(mixer) - 1
        style = _STYLES[place // 10 % len(_STYLES)] if place >= 0 else "-"
        looks[name] = {
            "color": colormaps["tab10"](place % 10) if place >= 0 else "black",
            "linestyle": style if name == mixer else "--",
        }
    return looks


def _set_axes(panel: Axes, lengths: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.minorticks_off()
    panel.tick_params(labelsize=8)
    panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
    panel.set_xlabel("length", fontsize=9)
    panel.grid(alpha=0.3)
