"""Which rows differ, on the same data set under the same protocol, and by how much. Method:
docs/reference/report.md.

Letters: S seeds, N test samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import isclose
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from subquad.errors import DataError
from subquad.output.terminal import DASH
from subquad.record.files import read_bytes
from subquad.record.names import PREDICTIONS, RESULT
from subquad.reports import stats
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, varying, with_alternative
from subquad.reports.tuning import unequal
from subquad.security.limits import check_safetensors

METHOD = (
    "The 95 % intervals are about new seeds and, where predictions were kept, new "
    "test samples. They are t intervals. "
    "Their variance adds that of the seeds, pooled over the mixers of the data set "
    "and protocol, and that of the test "
    "samples on which the two mixers differ. Two mixers are distinguishable where "
    "the interval excludes 0 and the "
    "p-value stays below 0.05 after Holm's correction over the pairs of the data "
    "set and protocol; the intervals "
    "themselves are not widened for the number of pairs. A mixer with one seed gets no verdict."
)
"""How the differences were judged, in the words that every report carries."""

_OTHER_SAMPLES = "the test samples differ between the runs"
_CHOSEN_ON_TEST = (
    "both scores were chosen on the test split, which the interval does not account for"
)
_ALPHA = 0.05

Pair = tuple[TableRow, TableRow]
"""Two rows that are compared, first minus second."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two rows, first minus second.

    Attributes:
        estimate: None where nothing can be said.
        seeds: seeds behind the estimate.
        basis: what the estimate is about: new ones of these.
        notes: what limits the comparison.
        adjusted: the p-value after Holm's correction over the pairs of one data set and protocol.
    """

    first: TableRow
    second: TableRow
    estimate: stats.Estimate | None
    seeds: int
    basis: Literal["test samples and seeds", "test samples", "seeds", "none"]
    notes: tuple[str, ...]
    adjusted: float | None = None

    @property
    def verdict(self) -> Literal["distinguishable", "not distinguishable", "not enough seeds"]:
        """Distinguishable only if the interval excludes 0 and the adjusted p is below 0.05."""
        if self.estimate is None or self.adjusted is None:
            return "not enough seeds"
        excludes_zero = self.estimate.low > 0 or self.estimate.high < 0
        if excludes_zero and self.adjusted < _ALPHA:
            return "distinguishable"
        return "not distinguishable"

    @property
    def unequal(self) -> str:
        """How what was spent on the settings of the two differs; "" where it does not."""
        return unequal(self.first.tuning, self.second.tuning)

    @property
    def estimate_texts(self) -> tuple[str, str]:
        """Difference and interval: `27.3`, `[24.1, 30.5]`."""
        if self.estimate is None:
            return DASH, DASH
        metric = self.first.compared
        points = metric.points(self.estimate.difference)
        return points, metric.interval(self.estimate.low, self.estimate.high)


class _Unpaired(Exception):
    """Why a row's test samples cannot be compared one by one."""


@dataclass(frozen=True)
class _Answers:
    """What a row scored, with what its test samples are known by, or the reason why they are not
    known.
    """

    row: TableRow
    scores: stats.Scores
    samples: np.ndarray | None = None
    reason: str = ""

    @staticmethod
    def of(row: TableRow) -> _Answers:
        try:
            samples, scores = _by_sample(row)
        except _Unpaired as reason:
            known = []
            for run in row.counted:
                score = run.score(row.metric)
                if score is not None:
                    known.append(score)
            return _Answers(row, stats.Scores(np.array(known)), reason=str(reason))
        return _Answers(row, stats.Scores.of(scores), samples)


def compare_rows(
    rows: Sequence[TableRow], baseline: str, apart: Collection[TableRow] = ()
) -> list[Comparison]:
    """All pairs that may be compared, the baseline second in its pairs.

    Args:
        rows: of the table.
        baseline: label of the mixer that others are held against; "" where there is none.
        apart: rows that are compared elsewhere with the others of their mixer.
    """
    families = defaultdict[tuple[str, ...], list[Pair]](list)
    elsewhere = set(map(id, apart))
    for first, second in combinations(rows, 2):
        pair = (first, second)
        if not _comparable(*pair):
            continue
        is_curve = elsewhere.issuperset(map(id, pair))
        if is_curve and first.label == second.label:
            continue
        if first.is_called(baseline) and not second.is_called(baseline):
            pair = (second, first)
        families[*first.family, first.metric].append(pair)
    comparisons: list[Comparison] = []
    for pairs in families.values():
        comparisons += _with_verdicts(pairs)
    return comparisons


def compare_values(rows: Sequence[TableRow], key: str) -> list[Comparison]:
    """All pairs of rows that differ in one setting; Holm's correction is over these pairs alone."""
    counted = [row for row in rows if row.counted]
    return _with_verdicts(list(combinations(counted, 2)), with_alternative(key))


def _comparable(first: TableRow, second: TableRow) -> bool:
    """Same data set, protocol and metric, both with a score; where both rows sweep a setting,
    the same value of it.
    """
    if first.family != second.family or first.metric != second.metric:
        return False
    other = dict(second.setting)
    for key, value in first.setting:
        if key.startswith("mixer."):
            continue
        if other.get(key, value) != value:
            return False
    return bool(first.counted and second.counted)


def _with_verdicts(pairs: Sequence[Pair], known: Collection[str] = ()) -> list[Comparison]:
    """Estimates for the pairs of one data set and protocol, Holm's correction over them, then the
    verdicts.

    One seed says nothing of how much training itself varies: an interval, but no test.
    """
    answers = {id(row): _Answers.of(row) for row in chain.from_iterable(pairs)}
    variance = stats.seed_variance([answer.scores for answer in answers.values()])
    comparisons: list[Comparison] = []
    p_values: dict[int, float] = {}
    for first, second in pairs:
        pair = _compare(answers[id(first)], answers[id(second)], variance, known)
        if pair.estimate and pair.seeds > 1:
            p_values[len(comparisons)] = pair.estimate.p_value
        comparisons.append(pair)
    for place, adjusted in zip(p_values, stats.holm(list(p_values.values())), strict=True):
        comparisons[place] = replace(comparisons[place], adjusted=adjusted)
    return comparisons


def _compare(
    mine: _Answers, other: _Answers, variance: tuple[float, float], known: Collection[str]
) -> Comparison:
    first = mine.row
    second = other.row
    notes = _unlike(first, second, known)
    if budgets := unequal(first.tuning, second.tuning):
        notes.append(budgets)
    reason = mine.reason or other.reason
    if not reason and not np.array_equal(np.asarray(mine.samples), np.asarray(other.samples)):
        reason = _OTHER_SAMPLES
    minuend = mine.scores
    subtrahend = other.scores
    if reason:
        minuend = replace(minuend, by_sample=None)
        subtrahend = replace(subtrahend, by_sample=None)
        notes.append(reason)
    if first.protocol == "paper":
        notes.append(_CHOSEN_ON_TEST)
    seeds = min(len(minuend.by_seed), len(subtrahend.by_seed))
    basis = "seeds" if reason else "test samples and seeds"
    if seeds == 1:
        # the seeds of other mixers could stand in, but nothing says that this one is like them
        basis = "none" if reason else "test samples"
        variance = (0.0, 0.0)
    estimate = None
    if basis != "none":
        resolution = _resolution(first, seeds)
        estimate = stats.difference(minuend, subtrahend, variance, resolution=resolution)
    return Comparison(
        first=first,
        second=second,
        estimate=estimate,
        seeds=seeds,
        basis=basis,
        notes=tuple(notes),
    )


def _unlike(first: TableRow, second: TableRow, known: Collection[str]) -> list[str]:
    """A line for each setting that differs beside the mixer's and those that are known."""
    mine = first.counted[0].settings
    others = second.counted[0].settings
    lines = []
    for key in varying((mine, others)):
        if key.startswith("mixer.") or key in known:
            continue
        value = mine.get(key, "none")
        other = others.get(key, "none")
        lines.append(f"settings differ too: {key} {value} / {other}")
    return lines


def _resolution(row: TableRow, seeds: int) -> float:
    """What one answer changes of a share of answers; 0 where that is not known."""
    if row.samples and row.compared.answers:
        return 1 / (row.samples * seeds)
    return 0.0


def _by_sample(row: TableRow) -> tuple[np.ndarray, np.ndarray]:
    """What the test samples are known by, and what the runs scored on each, (S, N)."""
    found = [_sample_scores(run, row.metric) for run in row.counted]
    samples, _ = found[0]
    by_seed = []
    for other, scores in found:
        if not np.array_equal(samples, other):
            raise _Unpaired(_OTHER_SAMPLES)
        by_seed.append(scores)
    return samples, np.stack(by_seed)


def _sample_scores(run: ReportedRun, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The same of one run, whose scores (N,) have its test metric as their mean.

    Samples are known by the true class of each, of scores that have none by their number and the
    data set's settings.
    """
    arrays = _predictions(run)
    scores = arrays.get(metric)
    label = arrays.get("label")
    if run.shown(metric).answers and scores is None:
        where = f"{PREDICTIONS} of {run.name}"
        predicted = arrays.get("predicted")
        if predicted is None or label is None or predicted.shape != label.shape:
            raise _Unpaired(f"{where} has no arrays `predicted` and `label` of one length")
        scores = predicted == label
    if scores is None or scores.ndim != 1 or len(scores) < 2:
        raise _Unpaired(f"{metric} is compared over seeds")
    mean = float(scores.mean(dtype=np.float64))
    if not isclose(mean, run.score(metric) or 0.0, rel_tol=1e-6, abs_tol=1e-6):
        raise _Unpaired(f"{PREDICTIONS} of {run.name} does not give the {metric} in {RESULT}")
    if label is not None:
        return label, scores
    known_by = [str(len(scores))]
    for key, value in sorted(run.settings.items()):
        if key.startswith("dataset."):
            known_by.append(f"{key} {value}")
    return np.array(known_by), scores


def _predictions(run: ReportedRun) -> dict[str, np.ndarray]:
    for fault in run.faults:
        if fault.startswith(PREDICTIONS):
            raise _Unpaired(f"{PREDICTIONS} of {run.name} is not what the result was made of")
    path = run.folder / PREDICTIONS
    try:
        content = read_bytes(path)
        check_safetensors(path, content)
        return load(content)
    except FileNotFoundError:
        raise _Unpaired("no predictions were kept") from None
    except (OSError, SafetensorError, DataError):
        raise _Unpaired(f"{PREDICTIONS} of {run.name} cannot be read") from None
