"""A comparison of mixers as a table on a terminal, as Markdown and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from subquad.bench.mixers import Comparison, Speed

COLUMNS = ("mixer", "L", "us/token fwd", "fwd+bwd", "/ softmax fwd", "fwd+bwd", "GFLOP", "MB", "GFLOP/s")


def cells(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row for each mixer and length, the lengths of a mixer together."""
    return [_cells(speed) for row in comparison.rows for speed in comparison.speeds if speed.row == row.text]


def _cells(speed: Speed) -> tuple[str, ...]:
    counted = "+" if speed.uncounted else ""
    return (
        speed.row,
        str(speed.length),
        f"{speed.forward_us:.3g}",
        f"{speed.both_us:.3g}",
        f"{speed.forward_ratio:.3f}",
        f"{speed.both_ratio:.3f}",
        f"{speed.gflop:.3g}{counted}",
        f"{speed.mbytes:.0f}{counted}",
        f"{speed.gflops:.1f}{counted}",
    )


def notes(comparison: Comparison) -> Iterator[str]:
    """How it was measured, what the rows' parameters are, and what was left out."""
    protocol, best = comparison.protocol, comparison.best
    clock = "medians of process CPU time, one thread" if protocol.device == "cpu" else "medians of CUDA event times"
    yield (
        f"D = {protocol.dim}, H = {protocol.heads}, {protocol.tokens} tokens, fp32, {protocol.device}, {clock} over "
        f"{protocol.rounds} rounds, {'causal' if protocol.causal else 'not causal'}; counts are of forward and backward"
    )
    yield f"this process at best: {best.gflops:.1f} GFLOP/s (2048^3 product), {best.gbytes:.1f} GB/s (copy)"
    for row in comparison.rows:
        alone = " [always causal]" if row.facts.causal == "always" and not protocol.causal else ""
        params = ", ".join(f"{key}={value}" for key, value in row.params.items())
        yield f"{row.text}{alone}: {params or 'no parameters'}"
    for row, names in {speed.row: speed.uncounted for speed in comparison.speeds if speed.uncounted}.items():
        yield f"{row}: not in its counts: {', '.join(names)}"
    for reason in comparison.skipped:
        yield f"skipped: {reason}"


def to_markdown(comparison: Comparison) -> str:
    """The table, then the notes as a list."""
    lines = [COLUMNS, ("---",) + ("---:",) * (len(COLUMNS) - 1), *cells(comparison)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([table, "", *(f"- {note}" for note in notes(comparison))])


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Plain values."""
    return {
        "what": "mixers",
        "protocol": asdict(comparison.protocol),
        "best": asdict(comparison.best),
        "rows": [{"row": row.text, "mixer": row.resolved.found.name, "params": row.params} for row in comparison.rows],
        "speeds": [asdict(speed) for speed in comparison.speeds],
        "skipped": list(comparison.skipped),
    }
