"""A sentence for each varied setting: how far its means lie apart, and how far seeds alone would put them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from subquad.report.compare import Comparison
from subquad.report.sensitivity import Sensitivity, Value
from subquad.report.text import PERCENT_METRICS, number, points

NOTE = (
    "The best value of a sensitivity table is chosen by its test scores, which makes it look better than it is: to "
    "choose one, take the validation means beside them, or search (subquad tune). Values are compared pair by pair as "
    "mixers are, with Holm's correction over the pairs of one table."
)


def sentence(one: Sensitivity) -> str:
    """The spread of the means, that of seeds, whether any two values differ, and what validation would choose."""
    scored = [value for value in one.values if value.row.score]
    if len(scored) < 2:
        return "fewer than two values have a score"
    return "; ".join(part for part in (_spread(scored), _verdict(one), _chosen(scored)) if part)


def lines(one: Sensitivity) -> list[str]:
    """The sentence, and for each verdict on published figures what it is and which values it is of."""
    found: dict[str, list[str]] = {}
    for value in one.values:
        for beside in value.published:
            cautions = f"; {'; '.join(beside.published.cautions)}" if beside.published.cautions else ""
            found.setdefault(f"{beside.reference}: {beside.verdict}{cautions}", []).append(value.text)
    whole = len(found) == 1
    said = [f"published, {verdict}" + ("" if whole else f" ({', '.join(texts)})") for verdict, texts in found.items()]
    return [sentence(one), *said]


def _spread(values: Sequence[Value]) -> str:
    metric = values[0].row.metric
    low, high = min(values, key=_mean), max(values, key=_mean)
    if _mean(low) == _mean(high):
        return f"all {len(values)} means are {number(_mean(low), metric)}"
    said = f"means from {number(_mean(low), metric)} ({low.text}) to {number(_mean(high), metric)} ({high.text})"
    apart = f"{points(_mean(high) - _mean(low), metric)} {_unit(metric)} apart"
    alone = by_seeds(values)
    seeds = (
        f"; seeds alone would put {len(values)} such means {points(alone, metric)} apart" if alone is not None else ""
    )
    return f"{said}, {apart}{seeds}"


def by_seeds(values: Sequence[Value]) -> float | None:
    """Expected largest minus smallest mean if the setting did nothing: seeds' variances, pooled; None with one seed."""
    scores = [value.row.score for value in values if value.row.score]
    variances = [score.std**2 / score.count for score in scores if score.std is not None]
    if len(variances) < len(scores):
        return None
    return expected_range(len(scores)) * math.sqrt(math.fsum(variances) / len(variances))


def expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett, 1925."""
    step, reach = 0.01, 8.0
    total = 0.0
    for index in range(int(2 * reach / step) + 1):
        below = 0.5 * math.erfc((reach - index * step) / math.sqrt(2))
        total += 1 - below**count - (1 - below) ** count
    return total * step


def _verdict(one: Sensitivity) -> str:
    tested = [pair for pair in one.comparisons if pair.adjusted is not None]
    if not tested:
        return "not enough seeds to tell values apart"
    clear = [pair for pair in tested if pair.verdict == "distinguishable"]
    pairs = f"{len(tested)} pair{'' if len(tested) == 1 else 's'}"
    if not clear:
        least = min(pair.adjusted for pair in tested if pair.adjusted is not None)
        return f"no two values are distinguishable (smallest p of {pairs} after Holm's correction: {least:.2f})"
    largest = max(clear, key=_gap)
    return f"distinguishable: {len(clear)} of {pairs}, the largest {_said(one, largest)}"


def _gap(pair: Comparison) -> float:
    return abs(pair.estimate.difference) if pair.estimate else 0.0


def _said(one: Sensitivity, pair: Comparison) -> str:
    assert pair.estimate is not None
    metric = pair.first.metric
    low, high = (points(end, metric) for end in (pair.estimate.low, pair.estimate.high))
    gap = points(pair.estimate.difference, metric)
    return f"{_text(one, pair.first)} − {_text(one, pair.second)}: {gap} [{low}, {high}]"


def _text(one: Sensitivity, row: object) -> str:
    return next(value.text for value in one.values if value.row is row)


def _chosen(values: Sequence[Value]) -> str:
    """What the validation means would choose, and what that scores."""
    known = [value for value in values if value.validation]
    if len(known) < len(values):
        return ""
    row = values[0].row
    pick = max if row.mode == "max" else min
    top = pick(value.validation.mean for value in known if value.validation)
    ties = [value for value in known if value.validation and value.validation.mean == top]
    if len(ties) > 1:
        return f"validation does not choose between {', '.join(value.text for value in ties)}"
    return f"validation would choose {ties[0].text}, test {number(_mean(ties[0]), row.metric)}"


def _mean(value: Value) -> float:
    return value.row.score.mean if value.row.score else 0.0


def _unit(metric: str) -> str:
    return "points" if metric in PERCENT_METRICS else metric
