"""Curves of `subquad bench mixers` as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PANELS = (
    ("both_us", "microseconds per token, forward and backward"),
    ("both_ratio", "time over torch attention"),
    ("peak_mib", "peak memory added (MiB)"),
)
_SIZE, _DPI = (4.4, 4.2), 120
_STYLES = ("-", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
"""Of ten mixers each, which differ by colour."""


def draw_speeds(speeds: Sequence[dict[str, Any]], path: Path) -> None:
    """Time, ratio and memory by length, a line for each mixer, in one PNG file.

    Args:
        speeds: those of `time_mixers`.
        path: of the file.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    names = list(dict.fromkeys(one["mixer"] for one in speeds))
    figure = Figure(figsize=(_SIZE[0] * len(_PANELS), _SIZE[1] + 0.18 * -(-len(names) // 4)), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    lengths = sorted({one["length"] for one in speeds})
    for panel, (key, title) in zip(panels, _PANELS, strict=True):
        for at, name in enumerate(names):
            own = [one for one in speeds if one["mixer"] == name and one[key] is not None]
            place = _place(name, names)
            style = "--" if name.endswith(" published") else _STYLES[at and place // 10 % len(_STYLES)]
            colour = "black" if at == 0 else colormaps["tab10"](place % 10)
            points = ([one["length"] for one in own], [one[key] for one in own])
            panel.plot(*points, linestyle=style, color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.minorticks_off()
        panel.tick_params(labelsize=8)
        panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("length", fontsize=9)
        panel.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=_DPI)


def _place(name: str, names: Sequence[str]) -> int:
    """Of colour and style; a published form has the colour of its mixer."""
    plain = [one for one in names[1:] if not one.endswith(" published")]
    own = name.removesuffix(" published")
    return plain.index(own) if own in plain else len(plain)
