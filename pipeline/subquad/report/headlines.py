"""Sentences for each data set and protocol: what mixing tokens is worth there, and what guesses score."""

from __future__ import annotations

from collections.abc import Sequence

from subquad.report import above, settings
from subquad.report.compare import Comparison, is_baseline
from subquad.report.oracles import Oracle
from subquad.report.rows import Row
from subquad.report.text import PERCENT_METRICS, points


def headlines(
    rows: Sequence[Row], comparisons: Sequence[Comparison], oracles: Sequence[Oracle], baseline: str
) -> list[str]:
    """Sentences in the order of the table."""
    families = dict.fromkeys((row.dataset, row.protocol) for row in rows)
    found = []
    for family in families:
        members = [row for row in rows if (row.dataset, row.protocol) == family]
        pairs = [one for one in comparisons if one.family == family]
        guesses = [one for one in oracles if (one.dataset, one.protocol) == family]
        parts = (_sentence(members, pairs, baseline), above.sentence(members, guesses))
        found += [f"{family[0]} ({family[1]}): {part}" for part in parts if part]
    return found


def _sentence(rows: Sequence[Row], everything: Sequence[Comparison], baseline: str) -> str:
    others = [row for row in rows if not is_baseline(row, baseline)]
    controls = [row for row in rows if is_baseline(row, baseline)]
    if not controls and all(row.roles for row in rows):
        return ""  # a study of a setting, not of mixers
    if not others:
        return f"only the {baseline} control ran: nothing to compare it with"
    if not controls:
        return f"no {baseline} control: add mixer {baseline} to see what mixing contributes"
    pairs = [one for one in everything if is_baseline(one.second, baseline) and not is_baseline(one.first, baseline)]
    if not pairs:
        return f"the {baseline} control and the other mixers have no test scores to compare"
    clear = [_clear(one, baseline, len(controls)) for one in pairs if one.verdict == "distinguishable"]
    alike = all(one.verdict == "not distinguishable" for one in everything)
    return "; ".join([*clear, *_unclear(pairs, baseline, alike)])


def _clear(one: Comparison, baseline: str, controls: int) -> str:
    assert one.estimate is not None
    sign = 1 if (one.estimate.difference > 0) == (one.first.mode == "max") else -1
    verb = "beats" if sign > 0 else "falls behind"
    control = f"the {baseline} control" + (_which(one.second) if controls > 1 else "")
    return f"{one.first.name} {verb} {control} by {_gap(one)}"


def _which(row: Row) -> str:
    return f" ({settings.short(row.setting)})" if row.setting else ""


def _gap(one: Comparison) -> str:
    """`61.2 points [58.9, 63.3]`, the size of a difference whose direction the verb says."""
    assert one.estimate is not None
    flip = -1 if one.estimate.difference < 0 else 1
    low, high = sorted((flip * one.estimate.low, flip * one.estimate.high))
    metric = one.first.metric
    name = "points" if metric in PERCENT_METRICS else metric
    return f"{points(abs(one.estimate.difference), metric)} {name} [{points(low, metric)}, {points(high, metric)}]"


def _unclear(pairs: Sequence[Comparison], baseline: str, alike: bool) -> list[str]:
    found: list[str] = []
    if names := _names(pairs, "not distinguishable"):
        end = ": this data set cannot tell mixers apart in this setting" if alike else ""
        control = f"the {baseline} control{_meaning(baseline)}"
        found.append(f"{names}: not distinguishable from {control}, {_open(pairs)} not excluded{end}")
    if names := _names(pairs, "not enough seeds"):
        found.append(
            f"{names}: not enough seeds to compare with the {baseline} control; run more than one seed of each"
        )
    return found


def _open(pairs: Sequence[Comparison]) -> str:
    """`differences of -1.8 to 2.3 points`: what stays possible, so that no evidence is not read as equality."""
    found = [one for one in pairs if one.verdict == "not distinguishable"]
    metric = found[0].first.metric
    low = min(one.estimate.low for one in found if one.estimate)
    high = max(one.estimate.high for one in found if one.estimate)
    name = "points" if metric in PERCENT_METRICS else metric
    return f"differences of {points(low, metric)} to {points(high, metric)} {name}"


def _names(pairs: Sequence[Comparison], verdict: str) -> str:
    return ", ".join(dict.fromkeys(one.first.name for one in pairs if one.verdict == verdict))


def _meaning(baseline: str) -> str:
    return " (no mixing)" if baseline == "identity" else ""
