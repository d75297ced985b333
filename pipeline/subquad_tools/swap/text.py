"""What `subquad swap` found, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from subquad.effect import as_written
from subquad.metric import metric_of, read_metrics
from subquad.terminal import print_line, print_table

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
    swaps = found["swaps"]
    name = found["metric"]
    metric = metric_of(read_metrics(found["metrics"]), name)
    print_line(f"{found['samples']:,} samples: {found['protocol']}; no training after the swap")
    keys: dict[str, None] = {}
    lines: dict[str, None] = {}
    for swap in swaps:
        keys |= dict.fromkeys(swap["params"])
        lines |= dict.fromkeys(_differences(swap))
    for line in lines:
        print_line(line)
    for words in found["staying"]:
        print_line(f"not swapped: {words}")
    score = metric.number(found["original"][name])
    rows = [["original", *[""] * len(keys), score, *[""] * len(_ERRORS)]]
    for swap in swaps:
        row = [found["mixer"]]
        row += [swap["params"].get(key, "") for key in keys]
        row.append(metric.number(swap["metrics"][name]))
        row += _error_cells(swap["errors"])
        rows.append(row)
    print_table(["mixer", *keys, metric.with_unit, *_ERRORS.values()], rows)
    choose = max if metric.mode == "max" else min
    best = choose(swaps, key=lambda swap: swap["metrics"][name])
    print_line()
    print_line(f"layers with {in_words(best['params']) or 'the defaults'}")
    layers = [[error["layer"], *_error_cells([error])] for error in best["errors"]]
    print_table(["layer", *_ERRORS.values()], layers)


def _error_cells(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mean of each measure over layers."""
    cells = []
    for measure in _ERRORS:
        mean = fmean(error[measure] for error in errors)
        cells.append(f"{mean:.4f}")
    return cells


def _differences(swap: Mapping[str, Any]) -> Iterator[str]:
    """What a swap keeps of the original, and what it cannot."""
    if swap["kept"]:
        yield f"kept: {in_words(swap['kept'])}"
    for key, lost in swap["lost"].items():
        value = as_written(lost["value"])
        yield f"not kept: {key} {value} ({lost['reason']})"
    gaps = weight_gaps(swap["untrained"], swap["left_out"])
    if gaps:
        yield gaps


def weight_gaps(untrained: Sequence[str], left_out: Sequence[str]) -> str:
    """How the tensors of a swapped model differ from the original's; "" where they do not."""
    kinds = {
        "have no weights of their name and shape in the original, and are drawn anew": untrained,
        "of the original have no place, and are left out": left_out,
    }
    parts = []
    for words, names in kinds.items():
        if names:
            parts.append(f"{len(names)} tensors {words} ({', '.join(names)})")
    return ", ".join(parts)


def in_words(params: Mapping[str, Any]) -> str:
    """Parameters with their values."""
    texts = [f"{key} {as_written(value)}" for key, value in params.items()]
    return ", ".join(texts)
