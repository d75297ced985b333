"""The ranges of a space file: uniform, loguniform and int, with their ends, step and scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from subquad.experiment.refusals import shown
from subquad.space.dimension import Kind, is_number
from subquad.space.place import Place


def parse_range(kind: Kind, given: Mapping[str, Any], at: Place) -> dict[str, Any]:
    """`low`, `high`, `step` and `log` of a range.

    Raises:
        ConfigError: it is no range, holds no number, or has options of another kind.
    """
    low, high = _ends(kind, given[kind], at.below(kind))
    if kind != "int":
        for word in ("step", "log"):
            if word in given:
                instead = "use int" if word == "step" else "use loguniform"
                raise at.below(word).wrong(f"has no effect with {kind}; leave it out, or {instead}")
    log = kind == "loguniform" or _log(given, at)
    if log and low <= 0:
        raise at.below(kind).wrong(f"starts at {low:g}, which has no logarithm; begin above 0, or use {_without(kind)}")
    return {"low": low, "high": high, "step": _step(given, low, high, log, at), "log": log}


def _without(kind: Kind) -> str:
    return "log: false" if kind == "int" else "uniform, or a choice with 0 in it"


def _ends(kind: Kind, given: Any, at: Place) -> tuple[Any, Any]:
    example = "[2, 10]" if kind == "int" else "[1e-4, 1e-2]"
    if not isinstance(given, list) or len(given) != 2:
        raise at.wrong(f"got {shown(given)}, must be the smallest and the largest value, as in {example}")
    words = "a whole number" if kind == "int" else "a number"
    for number, value in enumerate(given):
        if not is_number(value) or (kind == "int" and not isinstance(value, int)):
            raise at.below(number).wrong(f"got {shown(value)}, must be {words}")
    low, high = given if kind == "int" else map(float, given)
    if low >= high:
        what = "is one value" if low == high else "holds nothing"
        turned = "set it in the experiment" if low == high else f"write [{shown(given[1])}, {shown(given[0])}]"
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] {what}; {turned}")
    if math.isinf(high - low):
        raise at.wrong(f"[{shown(given[0])}, {shown(given[1])}] is wider than a number can be; take smaller ends")
    return low, high


def _log(given: Mapping[str, Any], at: Place) -> bool:
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise at.below("log").wrong(f"got {shown(log)}, must be true or false")
    return log


def _step(given: Mapping[str, Any], low: Any, high: Any, log: bool, at: Place) -> int:
    if "step" not in given:
        return 1
    step, at = given["step"], at.below("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise at.wrong(f"got {shown(step)}, must be a whole number >= 1")
    if log and step != 1:
        raise at.wrong("has no effect on a log scale; leave it or log out")
    if (high - low) % step:
        last = high - (high - low) % step
        fitting = f"end at {last} or {last + step}" if last > low else f"end at {last + step}"
        raise at.wrong(f"steps of {step} from {low} never reach {high}; {fitting}")
    return step
