"""What `subquad swap` found, in words, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from subquad.output.markup import fill_template, one_line
from subquad.output.terminal import print_line, print_table
from subquad.plugin.effect import as_written
from subquad.plugin.metric import Metric, metric_of, read_metrics
from subquad_tools.figures import draw_lines

_ERRORS = {
    "relative": "error / output",
    "first_token": "of the first token",
    "absolute": "mean error",
}
"""Measures of `OutputError`, and the titles of their columns."""


def print_swaps(found: Mapping[str, Any]) -> None:
    """What was kept of the original, a row for it and one for each swap; then the layers of the
    best one.
    """
    for line in dict.fromkeys(
        fill_template(
            "subquad_tools.swap",
            "swaps.txt.j2",
            one_line,
            in_words=in_words,
            as_written=as_written,
            weight_gaps=weight_gaps,
            **found,
        ).splitlines()
    ):
        print_line(line)
    swaps = found["swaps"]
    name = found["metric"]
    metric = _metric(found)
    keys = list(dict.fromkeys(key for swap in swaps for key in swap["params"]))
    rows = [
        [
            "original",
            *[""] * len(keys),
            metric.number(found["original"][name]),
            *[""] * len(_ERRORS),
        ]
    ]
    for swap in swaps:
        params = [swap["params"].get(key, "") for key in keys]
        score = metric.number(swap["metrics"][name])
        rows.append([found["mixer"], *params, score, *_error_cells(swap["errors"])])
    print_table(["mixer", *keys, metric.with_unit, *_ERRORS.values()], rows)
    choose = max if metric.mode == "max" else min
    best = choose(swaps, key=lambda swap: swap["metrics"][name])
    print_line()
    print_line(f"layers with {in_words(best['params']) or 'the defaults'}")
    print_table(
        ["layer", *_ERRORS.values()],
        [[error["layer"], *_error_cells([error])] for error in best["errors"]],
    )


def _metric(found: Mapping[str, Any]) -> Metric:
    return metric_of(read_metrics(found["metrics"]), found["metric"])


def _error_cells(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mean of each measure over layers."""
    return [f"{fmean([error[measure] for error in errors]):.4f}" for measure in _ERRORS]


def weight_gaps(untrained: Sequence[str], left_out: Sequence[str]) -> str:
    """How the tensors of a swapped model differ from the original's; "" where they do not."""
    kinds = {
        "have no weights of their name and shape in the original, and are drawn anew": untrained,
        "of the original have no place, and are left out": left_out,
    }
    return ", ".join(
        f"{len(names)} tensors {words} ({', '.join(names)})"
        for words, names in kinds.items()
        if names
    )


def in_words(params: Mapping[str, Any]) -> str:
    """Parameters with their values."""
    return ", ".join(f"{key} {as_written(value)}" for key, value in params.items())


def draw_swaps(found: Mapping[str, Any], out: Path) -> list[Path]:
    """PNG files of what `subquad swap` found: errors by layer, and the score by the first number
    that is varied.

    Args:
        found: what swap.json holds.
        out: folder that is there.
    """
    swaps = found["swaps"]
    name = found["metric"]
    errors = {}
    for swap in swaps:
        relative = [error["relative"] for error in swap["errors"]]
        errors[in_words(swap["params"]) or "defaults"] = range(len(relative)), relative
    written = [draw_lines(errors, out / "errors.png", "layer", "error / output of the mixer")]
    number = _varied_number([swap["params"] for swap in swaps])
    if number is None:
        return written
    metric = _metric(found)
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for swap in swaps:
        others = dict(swap["params"])
        if number in others:
            value = others.pop(number)
            x, y = curves.setdefault(in_words(others) or "defaults", ([], []))
            x.append(value)
            y.append(metric.scaled(swap["metrics"][name]))
    return [
        *written,
        draw_lines(
            curves,
            out / "scores.png",
            number,
            metric.with_unit,
            metric.scaled(found["original"][name]),
        ),
    ]


def _varied_number(params: Sequence[Mapping[str, Any]]) -> str | None:
    """The first parameter that is a number and has several values."""
    for key, value in params[0].items():
        if type(value) in (int, float) and len({other.get(key) for other in params}) > 1:
            return key
    return None
