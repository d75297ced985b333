"""The sentences above a table: what the mixers of each data set and protocol score beside the
baseline, and beside guesses without a model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import hypot, sqrt

from subquad.reports import stats
from subquad.reports.compare import Comparison
from subquad.reports.rows import Reference, TableRow
from subquad.reports.text import Spread, grouped

_PLACES = {
    "above": "above {what}: {names}",
    "not above": "not shown to be above {what}: {names} (scores up to it need no trained model)",
    "few seeds": "not enough seeds to place above {what}: {names}; run more than one seed of each",
}
"""What is said of rows by where they stand beside a reference."""


def make_headlines(
    rows: Sequence[TableRow],
    comparisons: Sequence[Comparison],
    references: Sequence[Reference],
    baseline: str,
) -> Iterator[str]:
    """Sentences in the order of the table: for each data set and protocol the baseline's, and
    the references'.
    """
    for family, group in grouped(rows, lambda row: row.family).items():
        pairs = [pair for pair in comparisons if pair.first.family == family]
        guesses = [reference for reference in references if reference.family == family]
        beside = _beside_baseline(pairs, baseline) if baseline else ()
        for parts in (beside, _beside_guesses(group, guesses)):
            if sentence := "; ".join(parts):
                yield "{} ({}): {}".format(*family, sentence)


def _beside_baseline(everything: Sequence[Comparison], baseline: str) -> Iterator[str]:
    """What the mixers score beside the baseline."""
    control = f"the baseline {baseline}"
    pairs = [
        pair
        for pair in everything
        if pair.second.is_called(baseline) and not pair.first.is_called(baseline)
    ]
    by_verdict = grouped(pairs, lambda pair: pair.verdict)
    if not pairs:
        yield f"no two test scores to compare, of {control} and of another mixer"
    yield from map(_clear, by_verdict.get("distinguishable", ()))
    if alike := by_verdict.get("not distinguishable"):
        metric = alike[0].first.compared
        estimates = [pair.estimate for pair in alike if pair.estimate]
        # what stays possible, so that no evidence is not read as equality
        low = metric.points(min(estimate.low for estimate in estimates))
        high = metric.points(max(estimate.high for estimate in estimates))
        possible = f"differences of {low} to {high} {metric.points_word} not excluded"
        if len({pair.verdict for pair in everything}) == 1:
            possible += f": {stats.why_alike(estimates)}"
        yield f"{_names(alike)}: not distinguishable from {control}, {possible}"
    if few := by_verdict.get("not enough seeds"):
        hint = "run more than one seed of each"
        yield f"{_names(few)}: not enough seeds to compare with {control}; {hint}"
    if spent := [f"{pair.first.name} {pair.unequal}" for pair in pairs if pair.unequal]:
        yield f"beside the baseline: {', '.join(spent)}"


def _clear(pair: Comparison) -> str:
    """`fast beats the baseline plain by 61.2 points [58.9, 63.3]`."""
    estimate = pair.estimate
    assert estimate is not None
    metric = pair.first.compared
    verb = "beats" if (estimate.difference > 0) == (metric.mode == "max") else "falls behind"
    # both ends have the sign of the difference
    interval = metric.interval(*sorted((abs(estimate.low), abs(estimate.high))))
    by = f"{metric.points(abs(estimate.difference))} {metric.points_word} {interval}"
    return f"{pair.first.name} {verb} the baseline {pair.second.name} by {by}"


def _names(pairs: Sequence[Comparison]) -> str:
    return ", ".join(dict.fromkeys(pair.first.name for pair in pairs))


def _beside_guesses(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[str]:
    """For the rows of one data set and protocol, each beside the best of the references that its
    runs recorded.

    Judged are metrics of which more is better, where the interval over the test samples is known.
    """
    found = defaultdict[tuple[Reference, str], list[str]](list)
    missing = []
    for row in rows:
        is_known = row.compared.answers or row.interval(row.metric)
        if row.score is None or row.compared.mode != "max" or not is_known:
            continue
        own = [
            reference
            for reference in references
            if reference.metric == row.metric
            and reference.interval(row.metric)
            and any(run in reference.runs for run in row.counted)
        ]
        if own:
            best = max(own, key=lambda reference: reference.reach[1])
            found[best, _place_of(row, row.score, best)].append(row.name)
        else:
            missing.append(row.name)
    for reference in references:
        metric = reference.compared
        share = f"{reference.label} {metric.points(reference.value)}"
        share += " %" if metric.unit == "%" else ""
        what = f"the best reference score ({share} {metric.interval(*reference.reach)})"
        for place, words in _PLACES.items():
            if names := found.get((reference, place)):
                yield words.format(what=what, names=", ".join(names))
                what = "it"
    if found and missing:
        yield f"no reference score recorded beside {', '.join(missing)}"
    if found and rows[0].protocol == "paper":
        yield "these scores were chosen on the test split"


def _place_of(row: TableRow, score: Spread, reference: Reference) -> str:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the
    reference's.
    """
    high = reference.reach[1]
    low, _ = row.interval(row.metric) or stats.wilson(score.mean, reference.samples or 1)
    low = _lower_end(score, low)
    if score.mean > high and low is None:
        return "few seeds"
    return "above" if low is not None and low > high else "not above"


def _lower_end(score: Spread, low: float) -> float | None:
    """Lower end of a 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and of `low`, the lower end over the samples, added
    in squares (Newcombe, 1998).
    """
    if score.std is None:
        return None
    error = score.std / sqrt(score.count)
    return score.mean - hypot(stats.t_quantile(score.count - 1.0) * error, score.mean - low)
