"""The sentences above a table: what the mixers of each data set and protocol score beside the
baseline, and beside guesses without a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import hypot, sqrt

from subquad.reports import stats
from subquad.reports.model import Comparison, Reference, TableRow
from subquad.reports.text import Spread, short_setting

_PLACES = {
    "above": ("above", ""),
    "not above": ("not shown to be above", " (scores up to it need no trained model)"),
    "few seeds": ("not enough seeds to place above", "; run more than one seed of each"),
}
"""Where a row stands beside a reference: the words before and after it."""


def make_headlines(
    rows: Sequence[TableRow],
    comparisons: Sequence[Comparison],
    references: Sequence[Reference],
    baseline: str,
) -> Iterator[str]:
    """Sentences in the order of the table: for each data set and protocol the baseline's, and
    the references'.
    """
    for family, group in groupby(rows, key=lambda row: row.family):
        members = list(group)
        pairs = [pair for pair in comparisons if pair.first.family == family]
        guesses = [reference for reference in references if reference.family == family]
        beside = _beside_baseline(members, pairs, baseline) if baseline else ()
        for parts in (beside, _beside_guesses(members, guesses)):
            if sentence := "; ".join(parts):
                yield f"{family[0]} ({family[1]}): {sentence}"


def _beside_baseline(
    rows: Sequence[TableRow], everything: Sequence[Comparison], baseline: str
) -> Iterator[str]:
    """What the mixers score beside the baseline."""
    controls = [row for row in rows if row.is_called(baseline)]
    pairs = [
        pair
        for pair in everything
        if pair.second.is_called(baseline) and not pair.first.is_called(baseline)
    ]
    control = f"the baseline {baseline}"
    if len(controls) == len(rows):
        yield f"only {control} ran: nothing to compare it with"
    elif not controls:
        if len(rows) == 1 or len({row.label for row in rows}) > 1:
            yield f"no row of {control}"
    elif not pairs:
        yield f"{control} and the other mixers have no test scores to compare"
    for pair in pairs:
        if pair.verdict == "distinguishable":
            setting = short_setting(pair.second.setting) if len(controls) > 1 else ""
            yield _clear(pair, f"{control} ({setting})" if setting else control)
    if alike := [pair for pair in pairs if pair.verdict == "not distinguishable"]:
        metric = alike[0].first.compared
        estimates = [pair.estimate for pair in alike if pair.estimate]
        # what stays possible, so that no evidence is not read as equality
        low = metric.points(min(estimate.low for estimate in estimates))
        high = metric.points(max(estimate.high for estimate in estimates))
        possible = f"differences of {low} to {high} {metric.points_word} not excluded"
        why = (
            f": {stats.why_alike(estimates)}"
            if len({pair.verdict for pair in everything}) == 1
            else ""
        )
        yield f"{_names(alike)}: not distinguishable from {control}, {possible}{why}"
    if few := [pair for pair in pairs if pair.verdict == "not enough seeds"]:
        words = f"{_names(few)}: not enough seeds to compare with {control}"
        yield f"{words}; run more than one seed of each"
    if spent := [f"{pair.first.name} {pair.unequal}" for pair in pairs if pair.unequal]:
        yield f"beside the baseline: {', '.join(spent)}"


def _clear(pair: Comparison, control: str) -> str:
    """`fast beats the baseline plain by 61.2 points [58.9, 63.3]`."""
    estimate = pair.estimate
    assert estimate is not None
    metric = pair.first.compared
    is_better = (estimate.difference > 0) == (metric.mode == "max")
    # both ends have the sign of the difference
    interval = metric.interval(*sorted((abs(estimate.low), abs(estimate.high))))
    by = f"{metric.points(abs(estimate.difference))} {metric.points_word} {interval}"
    return f"{pair.first.name} {'beats' if is_better else 'falls behind'} {control} by {by}"


def _names(pairs: Sequence[Comparison]) -> str:
    return ", ".join(dict.fromkeys(pair.first.name for pair in pairs))


def _beside_guesses(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[str]:
    """For the rows and references of one data set and protocol."""
    own = {row: _own(row, references) for row in rows if row.score and _is_judged(row)}
    found = []
    for row, guesses in own.items():
        best = max(guesses, key=lambda guess: guess.reach[1], default=None)
        found += [[guess, guess is best, _place_of(row, guess), row.name] for guess in guesses]
    if not found:
        return
    for reference in references:
        what = f"the best reference score ({_named(reference)})"
        for place, (start, end) in _PLACES.items():
            names = [name for *at, name in found if at == [reference, True, place]]
            if names:
                yield f"{start} {what}: {', '.join(names)}{end}"
                what = "it"
    for reference in references:
        names = [name for *at, name in found if at == [reference, False, "not above"]]
        if names:
            yield f"nor above {_named(reference)}: {', '.join(names)}"
    if missing := [row.name for row, guesses in own.items() if not guesses]:
        yield f"no reference score recorded beside {', '.join(missing)}"
    if rows[0].protocol == "paper":
        yield "these scores were chosen on the test split"


def _is_judged(row: TableRow) -> bool:
    """Judged are metrics of which more is better, where the interval over the test samples is
    known.
    """
    metric = row.compared
    return metric.mode == "max" and bool(metric.answers or row.interval(row.metric))


def _own(row: TableRow, references: Sequence[Reference]) -> list[Reference]:
    """Those with an interval that the row's own runs recorded."""
    folders = {run.folder for run in row.counted}
    return [
        reference
        for reference in references
        if reference.metric == row.metric
        and reference.interval(row.metric)
        and folders & {run.folder for run in reference.runs}
    ]


def _named(reference: Reference) -> str:
    """`root operator 36.4 % [34.3, 38.5]`."""
    metric = reference.compared
    unit = " %" if metric.unit == "%" else ""
    share = f"{reference.label} {metric.points(reference.value)}{unit}"
    return f"{share} {metric.interval(*reference.reach)}"


def _place_of(row: TableRow, reference: Reference) -> str:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the
    reference's.
    """
    _, high = reference.reach
    score = row.score
    if score is None or score.mean <= high:
        return "not above"
    interval = row.interval(row.metric) or stats.wilson(score.mean, reference.samples or 1)
    low = _lower_end(score, interval[0])
    if low is None:
        return "few seeds"
    return "above" if low > high else "not above"


def _lower_end(score: Spread, low: float) -> float | None:
    """Lower end of a 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and of `low`, the lower end over the samples, added
    in squares (Newcombe, 1998).
    """
    if score.std is None:
        return None
    error = score.std / sqrt(score.count)
    return score.mean - hypot(stats.t_quantile(score.count - 1.0) * error, score.mean - low)
