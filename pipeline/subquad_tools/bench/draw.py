"""Curves of `subquad bench mixers` as a picture."""

from __future__ import annotations

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
    figure = new_figure(width * len(_PANELS), height + 0.18 * -(-len(names) // 4))
    panels = figure.subplots(1, len(_PANELS))
    for panel, (key, title) in zip(panels, _PANELS, strict=True):
        measured = [speed for speed in speeds if speed[key] is not None]
        for name in names:
            own = [speed for speed in measured if speed["mixer"] == name]
            points = ([speed["length"] for speed in own], [speed[key] for speed in own])
            panel.plot(*points, label=name, **_look(name, names))
        _set_axes(panel, lengths)
        panel.set_title(title, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save_figure(figure, path)


def _look(name: str, names: Sequence[str]) -> dict[str, Any]:
    """How a mixer's line looks: the first is black, and a published form is dashed."""
    from matplotlib import colormaps

    place, is_first = _place(name, names), name == names[0]
    style = _STYLES[0 if is_first else place // 10 % len(_STYLES)]
    return {
        "linestyle": "--" if name.endswith(" published") else style,
        "color": "black" if is_first else colormaps["tab10"](place % 10),
        "linewidth": 1.2,
        "marker": "o",
        "markersize": 3,
    }


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


def _place(name: str, names: Sequence[str]) -> int:
    """Of colour and style; a published form has the colour of its mixer."""
    plain = [other for other in names[1:] if not other.endswith(" published")]
    own = name.removesuffix(" published")
    return plain.index(own) if own in plain else len(plain)
