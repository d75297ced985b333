"""Which rows differ, on the same data set under the same protocol, and by how much. Method:
docs/reference/report.md.

Letters: S seeds, N test samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from math import inf, isclose
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from subquad.errors import DataError
from subquad.record.files import read_bytes
from subquad.record.names import PREDICTIONS, RESULT
from subquad.reports import stats
from subquad.reports.reported_run import ReportedRun, unequal, varying, with_alternative
from subquad.reports.rows import TableRow
from subquad.reports.text import grouped
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

_CHOSEN_ON_TEST = (
    "both scores were chosen on the test split, which the interval does not account for"
)
_OTHER_SAMPLES = "the test samples differ between the runs"

_ALPHA = 0.05

_Pair = tuple[TableRow, TableRow]
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
        is_clear = self.estimate.low > 0 or self.estimate.high < 0
        return "distinguishable" if is_clear and self.adjusted < _ALPHA else "not distinguishable"

    @property
    def estimate_texts(self) -> tuple[str, str]:
        """Difference and interval: `27.3`, `[24.1, 30.5]`."""
        if self.estimate is None:
            return "", ""
        estimate = self.estimate
        metric = self.first.compared
        return metric.points(estimate.difference), metric.interval(estimate.low, estimate.high)

    @property
    def unequal(self) -> str:
        """How what was spent on the settings of the two differs; "" where it does not."""
        return unequal(self.first.tuning, self.second.tuning)


class _Unpaired(Exception):
    """Why a row's test samples cannot be compared one by one."""


_Answers = tuple[stats.Scores, np.ndarray, str]
"""What a row scored, with what its test samples are known by, or the reason why they are not
known.
"""


def _answers(row: TableRow) -> _Answers:
    try:
        samples, scores = zip(
            *[_sample_scores(run, row.metric) for run in row.counted], strict=True
        )
        if not all(np.array_equal(samples[0], other) for other in samples):
            raise _Unpaired(_OTHER_SAMPLES)
        return stats.Scores.of(np.stack(scores)), samples[0], ""
    except _Unpaired as reason:
        scores = np.array([run.score(row.metric) for run in row.counted])
        return stats.Scores(scores), np.array([]), str(reason)


def compare_rows(
    rows: Sequence[TableRow], baseline: str, apart: Collection[TableRow] = ()
) -> list[Comparison]:
    """All pairs that may be compared, the baseline second in its pairs: same data set, protocol and
    metric, both with a score; where both rows sweep a setting, the same value of it.

    Args:
        rows: of the table.
        baseline: label of the mixer that others are held against; "" where there is none.
        apart: rows that are compared elsewhere with the others of their mixer.
    """
    comparisons = []
    for family in grouped(rows, lambda row: (*row.family, row.metric)).values():
        pairs = []
        for first, second in combinations([row for row in family if row.counted], 2):
            swept = dict(second.setting)
            is_alike = all(
                key.startswith("mixer.") or swept.get(key, value) == value
                for key, value in first.setting
            )
            is_curve = first in apart and second in apart and first.label == second.label
            if is_alike and not is_curve:
                is_turned = first.is_called(baseline) and not second.is_called(baseline)
                pairs.append((second, first) if is_turned else (first, second))
        comparisons += _with_verdicts(pairs)
    return comparisons


def compare_values(rows: Sequence[TableRow], key: str) -> list[Comparison]:
    """All pairs of rows that differ in one setting; Holm's correction is over these pairs alone."""
    pairs = combinations([row for row in rows if row.counted], 2)
    return _with_verdicts(list(pairs), with_alternative(key))


def _with_verdicts(pairs: Sequence[_Pair], known: Collection[str] = ()) -> list[Comparison]:
    """Estimates for the pairs of one data set and protocol, Holm's correction over them, then the
    verdicts.

    One seed says nothing of how much training itself varies: an interval, but no test.
    """
    answers = {row: _answers(row) for row in dict.fromkeys(chain.from_iterable(pairs))}
    variance = stats.seed_variance([scores for scores, *_ in answers.values()])
    comparisons = [_compare(*pair, answers, variance, known) for pair in pairs]
    tested = {
        place: pair.estimate.p_value
        for place, pair in enumerate(comparisons)
        if pair.estimate and pair.seeds > 1
    }
    for place, adjusted in zip(tested, stats.holm(list(tested.values())), strict=True):
        comparisons[place] = replace(comparisons[place], adjusted=adjusted)
    return comparisons


def _compare(
    first: TableRow,
    second: TableRow,
    answers: Mapping[TableRow, _Answers],
    variance: tuple[float, float],
    known: Collection[str],
) -> Comparison:
    scores, samples, reason = answers[first]
    others, other_samples, other_reason = answers[second]
    notes = list(_unlike(first, second, known))
    reason = reason or other_reason
    if not reason and not np.array_equal(samples, other_samples):
        reason = _OTHER_SAMPLES
    if reason:
        scores = replace(scores, by_sample=None)
        notes.append(reason)
    if first.protocol == "paper":
        notes.append(_CHOSEN_ON_TEST)
    seeds = min(len(first.counted), len(second.counted))
    basis = "seeds" if reason else "test samples and seeds"
    if seeds == 1:
        # the seeds of other mixers could stand in, but nothing says that this one is like them
        basis = "none" if reason else "test samples"
        variance = (0.0, 0.0)
    estimate = None
    if basis != "none":
        # what one answer changes of a share of answers
        finest = first.samples * seeds if first.samples and first.compared.answers else inf
        estimate = stats.difference(scores, others, variance, resolution=1 / finest)
    return Comparison(
        first=first,
        second=second,
        estimate=estimate,
        seeds=seeds,
        basis=basis,
        notes=tuple(notes),
    )


def _unlike(first: TableRow, second: TableRow, known: Collection[str]) -> Iterator[str]:
    """A line for each setting that differs beside the mixer's and those that are known, then one
    on their budgets.
    """
    mine = first.first.settings
    others = second.first.settings
    for key in varying((mine, others)):
        if not key.startswith("mixer.") and key not in known:
            yield "settings differ too: {} {} / {}".format(
                key, mine.get(key, "none"), others.get(key, "none")
            )
    if spent := unequal(first.tuning, second.tuning):
        yield spent


def _sample_scores(run: ReportedRun, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """What the test samples are known by, and what a run scored on each, (N,), with its test
    metric as their mean.

    Samples are known by the true class of each, of scores that have none by their number and the
    data set's settings.
    """
    where = f"{PREDICTIONS} of {run.name}"
    arrays = _predictions(run, where)
    scores = arrays.get(metric)
    label = arrays.get("label")
    if run.shown(metric).answers and scores is None:
        predicted = arrays.get("predicted")
        if predicted is None or label is None or predicted.shape != label.shape:
            raise _Unpaired(f"{where} has no arrays `predicted` and `label` of one length")
        scores = predicted == label
    if scores is None or scores.ndim != 1 or len(scores) < 2:
        raise _Unpaired(f"{metric} is compared over seeds")
    mean = scores.mean(dtype=np.float64)
    if not isclose(mean, run.score(metric) or 0.0, rel_tol=1e-6, abs_tol=1e-6):
        raise _Unpaired(f"{where} does not give the {metric} in {RESULT}")
    if label is None:
        data = [text for text in run.settings.items() if text[0].startswith("dataset.")]
        label = np.array([str(len(scores)), *map(" ".join, sorted(data))])
    return label, scores


def _predictions(run: ReportedRun, where: str) -> dict[str, np.ndarray]:
    if any(fault.startswith(PREDICTIONS) for fault in run.faults):
        raise _Unpaired(f"{where} is not what the result was made of")
    path = run.folder / PREDICTIONS
    try:
        content = read_bytes(path)
        check_safetensors(path, content)
        return load(content)
    except FileNotFoundError:
        raise _Unpaired("no predictions were kept") from None
    except (OSError, SafetensorError, DataError):
        raise _Unpaired(f"{where} cannot be read") from None
