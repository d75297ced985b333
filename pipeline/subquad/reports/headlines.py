"""The sentences above a table: what the mixers of each data set and protocol score beside the
baseline, and beside guesses without a model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import hypot, sqrt

from subquad.reports import stats
from subquad.reports.compare import Comparison
from subquad.reports.references import Reference
from subquad.reports.rows import TableRow, short_setting
from subquad.reports.text import Spread


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
        beside = _baseline_sentence(members, pairs, baseline)
        above = _reference_sentence(members, guesses)
        dataset, protocol = family
        for sentence in filter(None, (beside, above)):
            yield f"{dataset} ({protocol}): {sentence}"


def _baseline_sentence(
    rows: Sequence[TableRow], everything: Sequence[Comparison], baseline: str
) -> str:
    """What the mixers score beside the baseline."""
    controls = [row for row in rows if row.is_called(baseline)]
    labels = {row.label for row in rows}
    varies_one_mixer = len(labels) == 1 and len(rows) > 1
    if not baseline or (not controls and varies_one_mixer):
        return ""
    if len(controls) == len(rows):
        return f"only the baseline {baseline} ran: nothing to compare it with"
    if not controls:
        return f"no row of the baseline {baseline}"
    by_verdict = defaultdict[str, list[Comparison]](list)
    spent = []
    for pair in everything:
        if pair.second.is_called(baseline) and not pair.first.is_called(baseline):
            by_verdict[pair.verdict].append(pair)
            if pair.unequal:
                spent.append(f"{pair.first.name} {pair.unequal}")
    if not by_verdict:
        return f"the baseline {baseline} and the other mixers have no test scores to compare"
    parts = [_clear(pair, baseline, len(controls)) for pair in by_verdict["distinguishable"]]
    if alike := by_verdict["not distinguishable"]:
        words = f"not distinguishable from the baseline {baseline}, {_possible(alike)} not excluded"
        verdicts = {pair.verdict for pair in everything}
        if len(verdicts) == 1:
            words += f": {_why_alike(alike)}"
        parts.append(f"{_names(alike)}: {words}")
    if few := by_verdict["not enough seeds"]:
        words = f"not enough seeds to compare with the baseline {baseline}"
        parts.append(f"{_names(few)}: {words}; run more than one seed of each")
    if spent:
        parts.append(f"beside the baseline: {', '.join(spent)}")
    return "; ".join(parts)


def _why_alike(pairs: Sequence[Comparison]) -> str:
    """Whether more seeds could tell: with very many of them, a difference as found would stand
    out of the samples'.
    """
    for pair in pairs:
        if pair.estimate and abs(pair.estimate.difference) > pair.estimate.least:
            return "too few seeds to tell"
    return "this data set cannot tell mixers apart in this setting"


def _clear(pair: Comparison, baseline: str, controls: int) -> str:
    """`fast beats the baseline plain by 61.2 points [58.9, 63.3]`."""
    estimate = pair.estimate
    assert estimate is not None
    metric = pair.first.compared
    is_more = estimate.difference > 0
    more_is_better = metric.mode == "max"
    verb = "beats" if is_more == more_is_better else "falls behind"
    control = f"the baseline {baseline}"
    if controls > 1 and pair.second.setting:
        control += f" ({short_setting(pair.second.setting)})"
    # both ends have the sign of the difference
    low, high = sorted((abs(estimate.low), abs(estimate.high)))
    points = metric.points(abs(estimate.difference))
    gap = f"{points} {metric.points_word} {metric.interval(low, high)}"
    return f"{pair.first.name} {verb} {control} by {gap}"


def _possible(pairs: Sequence[Comparison]) -> str:
    """`differences of -1.8 to 2.3 points`: what stays possible, so that no evidence is not read
    as equality.
    """
    estimates = [pair.estimate for pair in pairs if pair.estimate]
    metric = pairs[0].first.compared
    low = min(estimate.low for estimate in estimates)
    high = max(estimate.high for estimate in estimates)
    span = f"{metric.points(low)} to {metric.points(high)}"
    return f"differences of {span} {metric.points_word}"


def _names(pairs: Sequence[Comparison]) -> str:
    names = dict.fromkeys(pair.first.name for pair in pairs)
    return ", ".join(names)


def _reference_sentence(rows: Sequence[TableRow], references: Sequence[Reference]) -> str:
    """For the rows and references of one data set and protocol; empty where there is nothing to
    say.
    """
    judged = defaultdict[int, list[TableRow]](list)
    not_above = defaultdict[int, list[str]](list)
    missing = []
    for row in rows:
        if not _is_judged(row):
            continue
        own = _own(row, references)
        if not own:
            missing.append(row.name)
            continue
        highest = max(own, key=lambda reference: reference.reach[1])
        judged[id(highest)].append(row)
        for reference in own:
            if reference is not highest and _place_of(row, reference) == "not above":
                not_above[id(reference)].append(row.name)
    if not judged:
        return ""
    parts = []
    others = []
    for reference in references:
        if beside := judged[id(reference)]:
            parts.append(_against(reference, beside))
        if names := not_above[id(reference)]:
            others.append(f"nor above {_named(reference)}: {', '.join(names)}")
    parts += others
    if missing:
        parts.append(f"no reference score recorded beside {', '.join(missing)}")
    if rows[0].protocol == "paper":
        parts.append("these scores were chosen on the test split")
    return "; ".join(parts)


def _is_judged(row: TableRow) -> bool:
    """Judged are metrics of which more is better, where the interval over the test samples is
    known.
    """
    if row.score is None or row.compared.mode != "max":
        return False
    return row.compared.answers or row.interval(row.metric) is not None


def _own(row: TableRow, references: Sequence[Reference]) -> list[Reference]:
    """Those with an interval that the row's own runs recorded."""
    folders = {run.folder for run in row.counted}
    own = []
    for reference in references:
        recorded = {run.folder for run in reference.runs}
        if folders & recorded and reference.metric == row.metric and reference.interval:
            own.append(reference)
    return own


def _named(reference: Reference) -> str:
    """`root operator 36.4 % [34.3, 38.5]`."""
    metric = reference.compared
    share = metric.points(reference.value)
    if metric.unit == "%":
        share += " %"
    return f"{reference.words} {share} {metric.interval(*reference.reach)}"


_PLACES = {
    "above": ("above", ""),
    "not above": ("not shown to be above", " (scores up to it need no trained model)"),
    "few seeds": ("not enough seeds to place above", "; run more than one seed of each"),
}
"""Where a row stands beside a reference: the words before and after it."""


def _against(reference: Reference, rows: Sequence[TableRow]) -> str:
    places = defaultdict[str, list[str]](list)
    for row in rows:
        places[_place_of(row, reference)].append(row.name)
    what = f"the best reference score ({_named(reference)})"
    parts = []
    for place, (start, end) in _PLACES.items():
        if names := places[place]:
            parts.append(f"{start} {what}: {', '.join(names)}{end}")
            what = "it"
    return "; ".join(parts)


def _place_of(row: TableRow, reference: Reference) -> str:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the
    reference's.
    """
    _, high = reference.reach
    score = row.score
    if score is None or score.mean <= high:
        return "not above"
    interval = row.interval(row.metric) or stats.wilson(score.mean, reference.samples)
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
    of_seeds = stats.t_quantile(score.count - 1.0) * error
    of_samples = score.mean - low
    return score.mean - hypot(of_seeds, of_samples)
