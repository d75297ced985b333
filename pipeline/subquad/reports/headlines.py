"""The sentences above a table: what the mixers of each data set and protocol score beside the
baseline, and beside guesses without a model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
        start = f"{dataset} ({protocol})"
        if beside:
            yield f"{start}: {beside}"
        if above:
            yield f"{start}: {above}"


def _baseline_sentence(
    rows: Sequence[TableRow], everything: Sequence[Comparison], baseline: str
) -> str:
    """What the mixers score beside the baseline."""
    if not baseline:
        return ""
    controls = [row for row in rows if row.is_called(baseline)]
    if len(controls) == len(rows):
        return f"only the baseline {baseline} ran: nothing to compare it with"
    if not controls:
        labels = {row.label for row in rows}
        if len(labels) == 1 and len(rows) > 1:
            return ""
        return f"no row of the baseline {baseline}"
    by_verdict = defaultdict[str, list[Comparison]](list)
    spent = []
    for pair in everything:
        if pair.first.is_called(baseline) or not pair.second.is_called(baseline):
            continue
        by_verdict[pair.verdict].append(pair)
        if pair.unequal:
            spent.append(f"{pair.first.name} {pair.unequal}")
    if not by_verdict:
        return f"the baseline {baseline} and the other mixers have no test scores to compare"
    parts = [_clear(pair, baseline, len(controls)) for pair in by_verdict["distinguishable"]]
    parts += _unclear(by_verdict, baseline, explain=len({pair.verdict for pair in everything}) == 1)
    if spent:
        unequal = ", ".join(spent)
        parts.append(f"beside the baseline: {unequal}")
    return "; ".join(parts)


def _unclear(
    by_verdict: Mapping[str, Sequence[Comparison]], baseline: str, *, explain: bool
) -> Iterator[str]:
    """The mixers that are not told from the baseline; `explain`: why, where that holds for all
    pairs.
    """
    if alike := by_verdict.get("not distinguishable"):
        words = f"not distinguishable from the baseline {baseline}, {_possible(alike)} not excluded"
        if explain:
            words += f": {why_alike(alike)}"
        names = _names(alike)
        yield f"{names}: {words}"
    if few := by_verdict.get("not enough seeds"):
        names = _names(few)
        words = f"not enough seeds to compare with the baseline {baseline}"
        yield f"{names}: {words}; run more than one seed of each"


def why_alike(pairs: Sequence[Comparison]) -> str:
    """Whether more seeds could tell: with very many of them, a difference as found would stand
    out of the samples'.
    """
    for pair in pairs:
        estimate = pair.estimate
        if estimate and abs(estimate.difference) > estimate.least:
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
    setting = pair.second.setting
    if controls > 1 and setting:
        control += f" ({short_setting(setting)})"
    # both ends have the sign of the difference
    interval = metric.interval(*sorted((abs(estimate.low), abs(estimate.high))))
    points = metric.points(abs(estimate.difference))
    by = f"{points} {metric.points_word} {interval}"
    return f"{pair.first.name} {verb} {control} by {by}"


def _possible(pairs: Sequence[Comparison]) -> str:
    """`differences of -1.8 to 2.3 points`: what stays possible, so that no evidence is not read
    as equality.
    """
    estimates = [pair.estimate for pair in pairs if pair.estimate]
    metric = pairs[0].first.compared
    low = min(estimate.low for estimate in estimates)
    high = max(estimate.high for estimate in estimates)
    word = metric.points_word
    return f"differences of {metric.points(low)} to {metric.points(high)} {word}"


def _names(pairs: Sequence[Comparison]) -> str:
    return ", ".join(dict.fromkeys(pair.first.name for pair in pairs))


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
            place = _place_of(row, reference)
            if reference is not highest and place == "not above":
                not_above[id(reference)].append(row.name)
    if not judged:
        return ""
    parts = []
    others = []
    for reference in references:
        if beside := judged[id(reference)]:
            parts.append(_against(reference, beside))
        if not_above[id(reference)]:
            named = _named(reference)
            names = ", ".join(not_above[id(reference)])
            others.append(f"nor above {named}: {names}")
    parts += others
    if missing:
        names = ", ".join(missing)
        parts.append(f"no reference score recorded beside {names}")
    if rows[0].protocol == "paper":
        parts.append("these scores were chosen on the test split")
    return "; ".join(parts)


def _is_judged(row: TableRow) -> bool:
    """Judged are metrics of which more is better, where the interval over the test samples is
    known.
    """
    metric = row.compared
    if row.score is None or metric.mode != "max":
        return False
    if metric.answers:
        return True
    return row.interval(row.metric) is not None


def _own(row: TableRow, references: Sequence[Reference]) -> list[Reference]:
    """Those with an interval that the row's own runs recorded."""
    folders = {run.folder for run in row.counted}
    own = []
    for reference in references:
        if reference.metric != row.metric or not reference.interval:
            continue
        if folders & {run.folder for run in reference.runs}:
            own.append(reference)
    return own


def _named(reference: Reference) -> str:
    """`root operator 36.4 % [34.3, 38.5]`."""
    metric = reference.compared
    share = metric.points(reference.value)
    if metric.unit == "%":
        share += " %"
    interval = metric.interval(*reference.reach)
    return f"{reference.words} {share} {interval}"


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
        mixers = places[place]
        if mixers:
            names = ", ".join(mixers)
            parts.append(f"{start} {what}: {names}{end}")
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
    interval = row.interval(row.metric)
    if interval is None:
        interval = stats.wilson(score.mean, reference.samples)
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
