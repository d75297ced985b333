"""Which mixers score above what a guess without a model scores. Method: docs/reference/report.md."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt
from typing import Literal

from subquad.report import stats, student
from subquad.report.oracles import METRIC, Oracle
from subquad.report.rows import Row
from subquad.report.text import points

Verdict = Literal["above", "not above", "few seeds"]

_CHOSEN_ON_TEST = "; these scores were chosen on the test split"


def sentence(rows: Sequence[Row], oracles: Sequence[Oracle]) -> str:
    """For the rows and oracles of one data set and protocol; empty where there is nothing to say."""
    judged = [row for row in rows if row.metric == METRIC and row.score is not None]
    best = [best_of(row, oracles) for row in judged]
    pairs = list(zip(judged, best, strict=True))
    parts = [_against(one, own) for one in oracles if (own := [row for row, found in pairs if found is one])]
    if parts and (missing := [row.name for row, found in pairs if found is None]):
        parts.append(f"no oracle recorded beside {', '.join(missing)}")
    chosen = parts and any(row.protocol == "paper" for row in judged)
    return "; ".join(parts) + (_CHOSEN_ON_TEST if chosen else "")


def best_of(row: Row, oracles: Sequence[Oracle]) -> Oracle | None:
    """The oracle with the highest upper end among those of the row's own runs."""
    own = {cell.folder for cell in row.counted}
    found = [one for one in oracles if own & {cell.folder for cell in one.cells}]
    return max(found, key=lambda one: one.interval[1], default=None)


def judge(row: Row, oracle: Oracle) -> Verdict:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the oracle's."""
    assert row.score is not None
    high = oracle.interval[1]
    if row.score.mean <= high:
        return "not above"
    low = lower_end(row, oracle.samples)
    return "few seeds" if low is None else "above" if low > high else "not above"


def lower_end(row: Row, samples: int) -> float | None:
    """Lower end of an accuracy's 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and Wilson's over the samples, added in squares (Newcombe, 1998).
    """
    score = row.score
    if score is None or score.std is None:
        return None
    of_seeds = student.quantile(0.5 + stats.LEVEL / 2, score.count - 1.0) * score.std / sqrt(score.count)
    return score.mean - hypot(of_seeds, score.mean - stats.wilson(score.mean, samples)[0])


def _against(oracle: Oracle, rows: Sequence[Row]) -> str:
    low, high = (points(end, METRIC) for end in oracle.interval)
    what, parts = f"the best oracle ({oracle.words} {points(oracle.accuracy, METRIC)} % [{low}, {high}])", list[str]()
    for verdict, start, end in (
        ("above", "above", ""),
        ("not above", "not shown to be above", f" — scores up to it {oracle.needless}"),
        ("few seeds", "not enough seeds to place above", "; run more than one seed of each"),
    ):
        if names := [row.name for row in rows if judge(row, oracle) == verdict]:
            parts.append(f"{start} {'it' if parts else what}: {', '.join(names)}{end}")
    return "; ".join(parts)
