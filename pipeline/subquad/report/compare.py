"""Which rows differ, on the same data set under the same protocol, and by how much. Method: docs/reference/report.md.

Letters: S seeds, N test samples.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from subquad.report import stats
from subquad.report.rows import TableRow, varying, with_alternative
from subquad.report.run import ReportedRun
from subquad.report.text import DASH, Metric
from subquad.runs import PREDICTIONS

METHOD = (
    "Accuracies are compared by a paired bootstrap over test samples and seeds at once (10,000 resamples; all but one "
    "of the seeds drawn each time); the 95 % interval is the bootstrap standard error times a t quantile with "
    "Satterthwaite's degrees of freedom, at most those of the seeds. Without kept predictions: Welch's t interval, "
    "from three seeds on. Two mixers are distinguishable where the interval excludes 0 and the p-value stays below "
    "0.05 after Holm's correction over the pairs of the data set and protocol; the intervals themselves are not "
    "widened for the number of pairs. With one seed the interval covers test samples only, and no verdict is given."
)
"""How the differences were judged, in the words that every report carries."""

_ALPHA = 0.05
_MIN_WELCH_SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two rows, first minus second.

    Attributes:
        estimate: None where nothing can be said.
        seeds: seeds behind the estimate.
        basis: what was resampled.
        notes: what limits the comparison.
        adjusted: the p-value after Holm's correction over the pairs of one data set and protocol.
        verdict: "distinguishable" only if the interval excludes 0 and the adjusted p-value is below 0.05.
    """

    first: TableRow
    second: TableRow
    estimate: stats.Estimate | None
    seeds: int
    basis: Literal["test samples and seeds", "test samples", "seeds", "none"]
    notes: tuple[str, ...]
    adjusted: float | None = None
    verdict: Literal["distinguishable", "not distinguishable", "not enough seeds"] = "not enough seeds"

    @property
    def estimate_texts(self) -> tuple[str, str]:
        """Difference and interval: `27.3`, `[24.1, 30.5]`."""
        if self.estimate is None:
            return DASH, DASH
        metric = Metric(self.first.metric)
        return metric.points(self.estimate.difference), metric.interval(self.estimate.low, self.estimate.high)


class _Unpaired(Exception):
    """Why two rows cannot be compared sample by sample."""


def compare_rows(rows: Sequence[TableRow], baseline: str, apart: Collection[TableRow] = ()) -> list[Comparison]:
    """All pairs that may be compared, the baseline second in its pairs.

    Args:
        rows: of the table.
        baseline: label of the mixer that others are held against; "" where there is none.
        apart: rows that are compared elsewhere with the others of their mixer.
    """
    families: dict[tuple[str, str], list[Comparison]] = {}
    elsewhere = {id(row) for row in apart}
    for first, second in combinations(rows, 2):
        if _comparable(first, second) and not (first.label == second.label and {id(first), id(second)} <= elsewhere):
            swap = first.is_called(baseline) and not second.is_called(baseline)
            pair = _compare(second, first) if swap else _compare(first, second)
            families.setdefault(first.family, []).append(pair)
    return [one for family in families.values() for one in _judged(family)]


def compare_values(rows: Sequence[TableRow], key: str) -> list[Comparison]:
    """All pairs of rows that differ in one setting; Holm's correction is over these pairs alone."""
    scored, known = [row for row in rows if row.counted], with_alternative(key)
    return _judged([_compare(first, second, known) for first, second in combinations(scored, 2)])


def _comparable(first: TableRow, second: TableRow) -> bool:
    """Same data set, protocol and metric, both with a score; where both rows sweep a setting, the same value of it."""
    if (first.family, first.metric) != (second.family, second.metric) or not (first.counted and second.counted):
        return False
    mine, other = dict(first.setting), dict(second.setting)
    return all(mine[key] == other[key] for key in mine if key in other and not key.startswith("mixer."))


def _compare(first: TableRow, second: TableRow, known: Collection[str] = ()) -> Comparison:
    one, other = first.counted[0].settings, second.counted[0].settings
    keys = [key for key in varying([one, other]) if not key.startswith("mixer.") and key not in known]
    notes = [f"settings differ too: {key} {one.get(key, 'none')} / {other.get(key, 'none')}" for key in keys]
    try:
        return _over_samples(first, second, notes)
    except _Unpaired as reason:
        return _over_seeds(first, second, (*notes, str(reason)))


def _over_samples(first: TableRow, second: TableRow, notes: Sequence[str]) -> Comparison:
    correct = _correctness(first, second)
    if dropped := set(first.seeds) ^ set(second.seeds):
        notes = (*notes, f"seeds of one side only are left out: {', '.join(map(str, sorted(dropped)))}")
    if first.protocol == "paper":
        notes = (*notes, "both scores were chosen on the test split, which the interval does not account for")
    return Comparison(
        first=first,
        second=second,
        estimate=stats.paired_bootstrap(*correct),
        seeds=len(correct[0]),
        basis="test samples and seeds" if len(correct[0]) > 1 else "test samples",
        notes=tuple(notes),
    )


def _over_seeds(first: TableRow, second: TableRow, notes: tuple[str, ...]) -> Comparison:
    seeds = min(len(first.counted), len(second.counted))
    if seeds < _MIN_WELCH_SEEDS:
        return Comparison(first=first, second=second, estimate=None, seeds=seeds, basis="none", notes=notes)
    # (1/N)^2 is the square of what one test sample changes
    floor = 1.0 / first.samples**2 if first.samples and first.metric == "accuracy" else 0.0
    one, other = (
        [score for run in row.counted if (score := run.score(row.metric)) is not None] for row in (first, second)
    )
    estimate = stats.welch(one, other, floor=floor)
    return Comparison(first=first, second=second, estimate=estimate, seeds=seeds, basis="seeds", notes=notes)


def _correctness(first: TableRow, second: TableRow) -> list[np.ndarray]:
    """What the runs of both rows got right with the seeds that both have, ascending: (S, N) bool each."""
    seeds = set(first.seeds) & set(second.seeds)
    if first.metric != "accuracy":
        raise _Unpaired(f"{first.metric} is compared over seeds")
    if not seeds:
        raise _Unpaired("no seed in common")
    found = [[_predictions(run) for run in row.counted if run.seed in seeds] for row in (first, second)]
    labels = found[0][0][1]
    if any(not np.array_equal(labels, other) for runs in found for _, other in runs):
        raise _Unpaired("the test samples differ between the runs")
    return [np.stack([predicted == labels for predicted, _ in runs]) for runs in found]


def _predictions(run: ReportedRun) -> tuple[np.ndarray, np.ndarray]:
    """`predicted` and `label`, the true classes: (N,) int64 each."""
    try:
        arrays = load_file(run.folder / PREDICTIONS)
    except FileNotFoundError:
        raise _Unpaired("no predictions were kept") from None
    except (OSError, SafetensorError):
        raise _Unpaired(f"{PREDICTIONS} of {run.name} cannot be read") from None
    predicted, label = arrays.get("predicted"), arrays.get("label")
    if predicted is None or label is None or predicted.ndim != 1 or predicted.shape != label.shape or len(label) < 2:
        raise _Unpaired(f"{PREDICTIONS} of {run.name} has no arrays `predicted` and `label` of one length")
    if abs(float((predicted == label).mean()) - (run.score("accuracy") or 0.0)) > 1e-6:
        raise _Unpaired(f"{PREDICTIONS} of {run.name} does not give the accuracy in result.json")
    return predicted, label


def _judged(family: Sequence[Comparison]) -> list[Comparison]:
    """Holm's correction over the pairs of one data set and protocol, then the verdicts.

    One seed says nothing of how much training itself varies: an interval, but no test.
    """
    adjusted = iter(stats.holm([one.estimate.p_value for one in family if one.estimate and one.seeds > 1]))
    return [_with_verdict(one, next(adjusted)) if one.estimate and one.seeds > 1 else one for one in family]


def _with_verdict(one: Comparison, adjusted: float) -> Comparison:
    clear = one.estimate is not None and (one.estimate.low > 0 or one.estimate.high < 0) and adjusted < _ALPHA
    return replace(one, adjusted=adjusted, verdict="distinguishable" if clear else "not distinguishable")
