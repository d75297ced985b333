"""What `subquad swap` found, in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from subquad.output.markup import fill_template, one_line
from subquad.output.terminal import print_line, print_table
from subquad.plugin.effect import as_written
from subquad.plugin.metric import metric_of, read_metrics

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
    text = fill_template(
        "subquad_tools.swap",
        "swaps.txt.j2",
        one_line,
        in_words=in_words,
        as_written=as_written,
        weight_gaps=weight_gaps,
        **found,
    )
    for line in dict.fromkeys(text.splitlines()):
        print_line(line)
    swaps = found["swaps"]
    name = found["metric"]
    metric = metric_of(read_metrics(found["metrics"]), name)
    keys: dict[str, None] = {}
    for swap in swaps:
        keys |= dict.fromkeys(swap["params"])
    no_params = [""] * len(keys)
    no_errors = [""] * len(_ERRORS)
    rows = [["original", *no_params, metric.number(found["original"][name]), *no_errors]]
    for swap in swaps:
        params = [swap["params"].get(key, "") for key in keys]
        score = metric.number(swap["metrics"][name])
        rows.append([found["mixer"], *params, score, *_error_cells(swap["errors"])])
    titles = list(_ERRORS.values())
    print_table(["mixer", *keys, metric.with_unit, *titles], rows)
    choose = max if metric.mode == "max" else min
    best = choose(swaps, key=lambda swap: swap["metrics"][name])
    print_line()
    print_line(f"layers with {in_words(best['params']) or 'the defaults'}")
    layers = [[error["layer"], *_error_cells([error])] for error in best["errors"]]
    print_table(["layer", *titles], layers)


def _error_cells(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mean of each measure over layers."""
    cells = []
    for measure in _ERRORS:
        mean = fmean(error[measure] for error in errors)
        cells.append(f"{mean:.4f}")
    return cells


def weight_gaps(untrained: Sequence[str], left_out: Sequence[str]) -> str:
    """How the tensors of a swapped model differ from the original's; "" where they do not."""
    kinds = {
        "have no weights of their name and shape in the original, and are drawn anew": untrained,
        "of the original have no place, and are left out": left_out,
    }
    parts = [
        f"{len(names)} tensors {words} ({', '.join(names)})"
        for words, names in kinds.items()
        if names
    ]
    return ", ".join(parts)


def in_words(params: Mapping[str, Any]) -> str:
    """Parameters with their values."""
    return ", ".join([f"{key} {as_written(value)}" for key, value in params.items()])
