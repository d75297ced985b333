"""The passport as pictures: response and singular values of each mixer, likeness of tokens by depth; and swaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.diagnose.measure import Operator, Passport
from subquad.disk import replacing
from subquad.metric import metric_of, read_metrics

_PANEL, _DPI, _COLUMNS, _NAMED = (4.2, 3.4), 120, 3, 30


def draw_passports(passports: Mapping[str, Passport], out: Path) -> list[Path]:
    """Three PNG files.

    Args:
        passports: by what the picture calls the model.
        out: folder, which is made.
    """
    return [
        _panels(passports, out / "response.png", "frequency / pi", "gain (dB)", _response),
        _panels(passports, out / "singular_values.png", "index / tokens", "singular value over the largest", _spectrum),
        _likeness(passports, out / "similarity.png"),
    ]


def _response(axes: Any, operator: Operator, colour: Any) -> None:
    steps = len(operator.response) - 1
    gains = [20 * math.log10(max(gain, 1e-9)) for gain in operator.response]
    axes.plot([index / steps for index in range(steps + 1)], gains, color=colour, label=operator.layer)


def _spectrum(axes: Any, operator: Operator, colour: Any) -> None:
    values = [max(value / (operator.singular_values[0] or 1.0), 1e-9) for value in operator.singular_values]
    axes.semilogy([index / len(values) for index in range(len(values))], values, color=colour, label=operator.layer)


def _panels(
    passports: Mapping[str, Passport], path: Path, xlabel: str, ylabel: str, line: Callable[[Any, Operator, Any], None]
) -> Path:
    """One panel for each model, one line for each mixer, from the first layer (dark) to the last."""
    from matplotlib import colormaps

    columns = min(_COLUMNS, len(passports))
    rows = -(-len(passports) // columns)
    figure = _figure(columns * _PANEL[0], rows * _PANEL[1])
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for panel, (name, passport) in zip(axes, passports.items(), strict=False):
        for index, operator in enumerate(passport.operators):
            line(panel, operator, colormaps["viridis"](0.9 * index / max(1, len(passport.operators) - 1)))
        panel.set_title(_plain(name), fontsize=9)
        panel.grid(alpha=0.3)
        if len(passport.operators) <= 8:
            panel.legend(fontsize=6)
    for panel in list(axes)[len(passports) :]:
        panel.set_visible(False)
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
    return path


def _likeness(passports: Mapping[str, Passport], path: Path) -> Path:
    from matplotlib.ticker import MaxNLocator

    figure = _figure(7.2, 4.2)
    axes = figure.add_subplot()
    for name, passport in passports.items():
        axes.plot(range(len(passport.similarity)), passport.similarity, marker="o", markersize=3, label=_plain(name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer (0: embedded tokens)")
    axes.set_ylabel("mean cosine between tokens of a sample")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
    return path


def draw_swaps(found: Mapping[str, Any], out: Path) -> list[Path]:
    """PNG files of what `subquad swap` found: errors by layer, and the score by the first number that is varied.

    Args:
        found: what swap.json holds.
        out: folder that is there.
    """
    swaps = found["swaps"]
    layers = [([error["relative"] for error in one["errors"]], _settings(one["params"])) for one in swaps]
    lines = [(range(len(errors)), errors, name) for errors, name in layers]
    written = [_lines(lines, out / "errors.png", "layer", "error / output of the mixer")]
    varied = [key for key in swaps[0]["params"] if len({one["params"].get(key) for one in swaps}) > 1]
    number = next((key for key in varied if type(swaps[0]["params"][key]) in (int, float)), None)
    if number is None:
        return written
    shown = metric_of(read_metrics(found["metrics"]), found["metric"])
    curves = dict[str, list[tuple[float, float]]]()
    for one in swaps:
        if number in one["params"]:
            rest = _settings({key: value for key, value in one["params"].items() if key != number})
            score = shown.scaled(one["metrics"][found["metric"]])
            curves.setdefault(rest, []).append((one["params"][number], score))
    lines = [([x for x, _ in points], [y for _, y in points], name) for name, points in curves.items()]
    level = shown.scaled(found["original"][found["metric"]])
    return [*written, _lines(lines, out / "scores.png", number, shown.with_unit, level)]


def _settings(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in params.items()) or "defaults"


def _lines(
    lines: Sequence[tuple[Any, Any, str]], path: Path, xlabel: str, ylabel: str, level: float | None = None
) -> Path:
    """One line for each x, y and name, and a level to compare them with."""
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    figure = _figure(8.4, 4.2)
    axes = figure.add_subplot()
    for index, (x, y, name) in enumerate(lines):
        colour = colormaps["viridis"](0.9 * index / max(1, len(lines) - 1))
        axes.plot(x, y, marker="o", markersize=3, color=colour, label=_plain(name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=all(float(x).is_integer() for xs, *_ in lines for x in xs)))
    if level is not None:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="original")
    axes.set_xlabel(_plain(xlabel))
    axes.set_ylabel(_plain(ylabel))
    axes.grid(alpha=0.3)
    if len(lines) <= _NAMED:
        figure.legend(fontsize=6, loc="outside right upper")
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
    return path


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plain(text: str) -> str:
    return text.replace("$", r"\$")
