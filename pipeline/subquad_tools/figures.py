"""Pictures of the tools: a figure, the colours of its lines, its file. Matplotlib is imported when
one is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subquad.security.disk import replacing

_DPI = 120


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
