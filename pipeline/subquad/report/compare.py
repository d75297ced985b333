"""Which rows differ, on the same data set under the same protocol, and by how much. Method: docs/reference/report.md.

Letters: S seeds, N test samples.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from subquad.report import stats
from subquad.report.rows import TableRow, varying, with_alternatives
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
        adjusted: the p-value after Holm's correction over the pairs of one data set and protocol.
        seeds: seeds behind the estimate.
        basis: what was resampled.
        verdict: "distinguishable" only if the interval excludes 0 and the adjusted p-value is below 0.05.
        notes: what limits the comparison.
    """

    first: TableRow
    second: TableRow
    estimate: stats.Estimate | None
    seeds: int
    basis: Literal["test samples and seeds", "test samples", "seeds", "none"]
    adjusted: float | None = None
    verdict: Literal["distinguishable", "not distinguishable", "not enough seeds"] = "not enough seeds"
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> tuple[str, str]:
        return self.first.family

    @property
    def estimate_texts(self) -> tuple[str, str]:
        """Difference and interval: `27.3`, `[24.1, 30.5]`."""
        if self.estimate is None:
            return DASH, DASH
        metric = Metric(self.first.metric)
        return metric.points(self.estimate.difference), metric.interval(self.estimate.low, self.estimate.high)


@dataclass(frozen=True)
class _Correctness:
    """What a row's runs got right: labels (N,) int64, the true classes; correct (S, N) bool, seeds ascending."""

    labels: np.ndarray
    correct: np.ndarray


def compare_rows(
    rows: Sequence[TableRow], baseline: str, apart: Callable[[TableRow, TableRow], bool]
) -> list[Comparison]:
    """All pairs that may be compared, the baseline second in its pairs.

    Args:
        rows: of the table.
        baseline: label of the mixer that others are held against; "" where there is none.
        apart: whether a pair is compared elsewhere.
    """
    pairs = [pair for pair in combinations(rows, 2) if not apart(*pair)]
    found = [_compare(*_ordered(pair, baseline)) for pair in pairs if _comparable(*pair)]
    families = dict.fromkeys(one.family for one in found)
    return [one for family in families for one in _corrected([one for one in found if one.family == family])]


def compare_values(rows: Sequence[TableRow], key: str) -> list[Comparison]:
    """All pairs of rows that differ in one setting; Holm's correction is over these pairs alone."""
    scored = [row for row in rows if row.counted]
    known = with_alternatives([key])
    return _corrected([_compare(first, second, known) for first, second in combinations(scored, 2)])


def _ordered(pair: tuple[TableRow, TableRow], baseline: str) -> tuple[TableRow, TableRow]:
    first, second = pair
    return (second, first) if first.is_called(baseline) and not second.is_called(baseline) else (first, second)


def _comparable(first: TableRow, second: TableRow) -> bool:
    """Same data set, protocol and metric, both with a score; where both rows sweep a setting, the same value of it."""
    if (first.family, first.metric) != (second.family, second.metric):
        return False
    mine, other = dict(first.setting), dict(second.setting)
    shared = [key for key in mine if key in other and not key.startswith("mixer.")]
    return bool(first.counted and second.counted) and all(mine[key] == other[key] for key in shared)


def _compare(first: TableRow, second: TableRow, known: Container[str] = ()) -> Comparison:
    others = _differing(first.counted[0].settings, second.counted[0].settings, known)
    notes = tuple(f"settings differ too: {one}" for one in others)
    seeds = tuple(sorted(set(first.seeds) & set(second.seeds)))
    one, other = _correctness(first, seeds), _correctness(second, seeds)
    found = [each for each in (one, other) if isinstance(each, _Correctness)]
    if len(found) == 2 and np.array_equal(found[0].labels, found[1].labels):
        return _from_samples(first, second, found[0].correct, found[1].correct, notes)
    reason = next((each for each in (one, other) if isinstance(each, str)), "the test samples differ between the runs")
    return _from_seeds(first, second, (*notes, reason))


def _differing(first: Mapping[str, str], second: Mapping[str, str], known: Container[str] = ()) -> tuple[str, ...]:
    """`train.lr 0.001 / 0.0003`, for settings outside the mixer, and not `known`, in which two rows differ."""
    keys = [key for key in varying([first, second]) if not key.startswith("mixer.") and key not in known]
    return tuple(f"{key} {first.get(key, 'none')} / {second.get(key, 'none')}" for key in keys)


def _from_samples(
    first: TableRow, second: TableRow, one: np.ndarray, other: np.ndarray, notes: tuple[str, ...]
) -> Comparison:
    seeds = len(one)
    if dropped := set(first.seeds) ^ set(second.seeds):
        notes = (*notes, f"seeds of one side only are left out: {', '.join(map(str, sorted(dropped)))}")
    if first.protocol == "paper":
        notes = (*notes, "both scores were chosen on the test split, which the interval does not account for")
    return Comparison(
        first=first,
        second=second,
        estimate=stats.paired_bootstrap(one, other),
        seeds=seeds,
        basis="test samples and seeds" if seeds > 1 else "test samples",
        notes=notes,
    )


def _from_seeds(first: TableRow, second: TableRow, notes: tuple[str, ...]) -> Comparison:
    seeds = min(len(first.counted), len(second.counted))
    if seeds < _MIN_WELCH_SEEDS:
        return Comparison(first=first, second=second, estimate=None, seeds=seeds, basis="none", notes=notes)
    # (1/N)^2 is the square of what one test sample changes
    floor = 1.0 / first.samples**2 if first.samples and first.metric == "accuracy" else 0.0
    estimate = stats.welch(_scores(first), _scores(second), floor=floor)
    return Comparison(first=first, second=second, estimate=estimate, seeds=seeds, basis="seeds", notes=notes)


def _scores(row: TableRow) -> list[float]:
    return [score for run in row.counted if (score := run.score(row.metric)) is not None]


def _correctness(row: TableRow, seeds: Sequence[int]) -> _Correctness | str:
    """What the runs with these seeds got right, or in words why it cannot be had."""
    if row.metric != "accuracy":
        return f"{row.metric} is compared over seeds"
    if not seeds:
        return "no seed in common"
    found = [_predictions(run) for run in row.counted if run.seed in seeds]
    for one in found:
        if isinstance(one, str):
            return one
    arrays = [one for one in found if not isinstance(one, str)]
    labels = arrays[0][1]
    if any(not np.array_equal(labels, other) for _, other in arrays):
        return "the test samples differ between the runs"
    return _Correctness(labels, np.stack([predicted == labels for predicted, _ in arrays]))


def _predictions(run: ReportedRun) -> tuple[np.ndarray, np.ndarray] | str:
    """`predicted` and `label`, (N,) each."""
    try:
        arrays = load_file(run.folder / PREDICTIONS)
    except FileNotFoundError:
        return "no predictions were kept"
    except (OSError, SafetensorError):
        return f"{PREDICTIONS} of {run.name} cannot be read"
    predicted, label = arrays.get("predicted"), arrays.get("label")
    if predicted is None or label is None or predicted.ndim != 1 or predicted.shape != label.shape or len(label) < 2:
        return f"{PREDICTIONS} of {run.name} has no arrays `predicted` and `label` of one length"
    if abs(float((predicted == label).mean()) - (run.score("accuracy") or 0.0)) > 1e-6:
        return f"{PREDICTIONS} of {run.name} does not give the accuracy in result.json"
    return predicted, label


def _corrected(family: list[Comparison]) -> list[Comparison]:
    """Holm's correction over the pairs of one data set and protocol, then the verdicts."""
    adjusted = iter(stats.holm([one.estimate.p_value for one in family if one.estimate and _tested(one)]))
    return [_judged(one, one.estimate, next(adjusted)) if one.estimate and _tested(one) else one for one in family]


def _tested(one: Comparison) -> bool:
    """One seed says nothing of how much training itself varies: an interval, but no test."""
    return one.estimate is not None and one.seeds > 1


def _judged(one: Comparison, estimate: stats.Estimate, adjusted: float) -> Comparison:
    clear = (estimate.low > 0 or estimate.high < 0) and adjusted < _ALPHA
    return replace(one, adjusted=adjusted, verdict="distinguishable" if clear else "not distinguishable")
