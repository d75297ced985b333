"""The passport as pictures: response and singular values of each mixer, likeness of tokens by
depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subquad_tools.diagnose.measure import Operator, Passport
from subquad_tools.figures import as_label, draw_lines, new_figure, save_figure, shade

_PANEL = (4.2, 3.4)
_COLUMNS = 3
_FLOOR = 1e-9


def draw_passports(passports: Mapping[str, Passport], out: Path) -> list[Path]:
    """Three PNG files.

    Args:
        passports: by what the picture calls the model.
        out: folder, which is made.
    """
    return [
        _panels(passports, out / "response.png", "frequency / pi", "gain (dB)", _response),
        _panels(
            passports,
            out / "singular_values.png",
            "index / tokens",
            "singular value over the largest",
            _spectrum,
        ),
        draw_lines(
            {
                name: (range(len(passport.similarity)), passport.similarity)
                for name, passport in passports.items()
            },
            out / "similarity.png",
            "layer (0: embedded tokens)",
            "mean cosine between tokens of a sample",
        ),
    ]


def _response(axes: Any, operator: Operator, colour: Any) -> None:
    decibels = 20 * np.log10(np.maximum(operator.response, _FLOOR))
    axes.plot(np.linspace(0, 1, len(decibels)), decibels, color=colour, label=operator.layer)


def _spectrum(axes: Any, operator: Operator, colour: Any) -> None:
    values = np.array(operator.singular_values)
    shares = np.maximum(values / (values[0] or 1.0), _FLOOR)
    axes.semilogy(np.arange(len(values)) / len(values), shares, color=colour, label=operator.layer)


def _panels(
    passports: Mapping[str, Passport],
    path: Path,
    xlabel: str,
    ylabel: str,
    line: Callable[[Any, Operator, Any], None],
) -> Path:
    """One panel for each model, one line for each mixer, from the first layer (dark) to the
    last.
    """
    width, height = _PANEL
    columns = min(_COLUMNS, len(passports))
    rows = math.ceil(len(passports) / columns)
    figure = new_figure(columns * width, rows * height)
    panels = iter(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for name, passport in passports.items():
        panel = next(panels)
        for index, operator in enumerate(passport.operators):
            line(panel, operator, shade(index, len(passport.operators)))
        panel.set_title(as_label(name), fontsize=9)
        panel.grid(alpha=0.3)
        if len(passport.operators) <= 8:
            panel.legend(fontsize=6)
    for panel in panels:
        panel.set_visible(False)
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    return save_figure(figure, path)
