"""What steps and evaluations of candidates take on this machine, as search.yaml keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

NOISY = 0.1
"""Difference of a step's time between rounds from which on it is told, relative to their median."""


class Timing(TypedDict):
    """Of a candidate's own experiment, with one worker.

    Attributes:
        step: seconds of a training step.
        evaluation: seconds of an evaluation on the whole validation split.
        spread: largest difference of a step's time between rounds, relative to their median.
    """

    step: float
    evaluation: float
    spread: float


def timing_lines(measured: Mapping[str, Timing]) -> list[str]:
    """What was measured, and a warning where it may not hold."""
    lines = [
        f"{label}: timed at {one['step'] * 1e3:.3g} ms a step, {one['evaluation'] * 1e3:.3g} ms an evaluation"
        for label, one in measured.items()
    ]
    noisy = [f"{label} ({one['spread']:.0%})" for label, one in measured.items() if one["spread"] > NOISY]
    if noisy:
        lines.append(f"steps took unequally long between rounds: {', '.join(noisy)}; is something else running here?")
    return lines
