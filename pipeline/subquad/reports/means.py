"""Mixers over several data sets: means, ranks, and whether they would rank so on others. Method:
docs/reference/report.md.

D data sets, k mixers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil, comb, fsum, log2

import numpy as np

from subquad.reports import stats
from subquad.reports.model import Mean, Reference, TableLine, TableRow
from subquad.reports.reported_run import unequal
from subquad.reports.stats import RankedPair, Ranking
from subquad.reports.text import Spread, grouped, p_text

_ALPHA = 0.05


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of
    them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it
    has a score on every data set in question, so that all means in a block are over the same data.
    """
    blocks = grouped((*rows, *references), lambda line: (line.protocol, line.metric))
    for lines in blocks.values():
        names = _datasets([line for line in lines if isinstance(line, TableRow)])
        groups = grouped(lines, lambda line: (type(line), getattr(line, "key", line.label))).items()
        guessed = [_datasets(members) for (kind, _), members in groups if kind is Reference]
        for datasets in dict.fromkeys((names, *guessed)):
            means = [_mean(datasets, names, members) for _, members in groups]
            block = list(filter(None, means))
            if len(datasets) > 1 and not all(mean.is_reference for mean in block):
                yield from block


def _datasets(lines: Sequence[TableLine]) -> tuple[str, ...]:
    """Each once, in the order of the lines."""
    return tuple(dict.fromkeys(line.dataset for line in lines))


def _mean(
    datasets: tuple[str, ...], names: Sequence[str], group: Sequence[TableLine]
) -> Mean | None:
    """Over these data sets, of all `names`; None where the group has not one score on each."""
    lines = tuple(line for line in group if line.dataset in datasets)
    values = tuple(line.score.mean for line in lines if line.score)
    if tuple(line.dataset for line in lines) != datasets or len(values) < len(lines):
        return None
    first = lines[0]
    by_seed = []
    if len({line.seeds for line in lines}) == 1:
        for runs in zip(*[line.counted for line in lines], strict=True):
            by_seed.append(fsum(run.score(first.metric) or 0.0 for run in runs) / len(lines))
    return Mean(
        name=first.name if isinstance(first, Reference) else first.label,
        others=tuple(name for name in names if name not in datasets),
        score=Spread.of(by_seed) or Spread(fsum(values) / len(values), None, 0),
        lines=lines,
        by_dataset=values,
    )


def make_rankings(means: Sequence[Mean], baseline: str) -> Iterator[Ranking]:
    """One for each protocol and metric with two mixers and more on all of its data sets."""
    whole = [mean for mean in means if not (mean.is_reference or mean.others)]
    for members in grouped(whole, lambda mean: (mean.first.protocol, mean.first.metric)).values():
        if len(members) > 1:
            yield _ranking(sorted(members, key=lambda mean: mean.name == baseline))


def _ranking(members: Sequence[Mean]) -> Ranking:
    from scipy.stats import rankdata

    first = members[0]
    scores = np.array([member.by_dataset for member in members]).T
    good = scores if first.first.compared.mode == "max" else -scores
    ranks = rankdata(-good.round(9), axis=1)
    order = np.argsort(ranks.mean(axis=0), kind="stable")
    friedman = stats.friedman(ranks) if len(members) > 2 else None
    least_p = 2.0 ** (1 - len(scores))
    least_p_holm = min(1.0, least_p * comb(len(members), 2))
    pairs = tuple(_pairs(members, scores, good, is_enough=least_p_holm < _ALPHA))
    return Ranking(
        protocol=first.first.protocol,
        metric=first.first.metric,
        compared=first.first.compared,
        datasets=first.datasets,
        mixers=tuple(members[place].name for place in order),
        ranks=tuple(ranks.mean(axis=0)[order].tolist()),
        friedman=friedman,
        critical=stats.critical_difference(len(members), len(scores)),
        least_p=least_p,
        least_p_holm=least_p_holm,
        pairs=pairs,
        sentence="; ".join(_sentence(first, friedman, pairs, least_p_holm)),
    )


def _pairs(
    members: Sequence[Mean], scores: np.ndarray, good: np.ndarray, *, is_enough: bool
) -> Iterator[RankedPair]:
    """All of them, the last member second in its pairs. `is_enough`: so many data sets can tell a
    pair apart.
    """
    pairs = list(combinations(range(len(members)), 2))
    gaps = [good[:, first] - good[:, second] for first, second in pairs]
    chances = list(map(stats.signed_rank, gaps))
    holm = stats.holm([chance.p_value for chance in chances])
    for (first, second), gap, chance, adjusted in zip(pairs, gaps, chances, holm, strict=True):
        signs = np.sign(gap.round(9)).tolist()
        verdict = "distinguishable" if adjusted < _ALPHA else "not distinguishable"
        yield RankedPair(
            first=members[first].name,
            second=members[second].name,
            difference=float((scores[:, first] - scores[:, second]).mean()),
            wins=(signs.count(1), signs.count(-1)),
            chance=chance,
            adjusted=adjusted,
            unequal=tuple(
                line.dataset
                for line, other in zip(members[first].lines, members[second].lines, strict=True)
                if unequal(line.tuning, other.tuning)
            ),
            verdict=verdict if is_enough else "too few data sets",
        )


def _sentence(
    first: Mean, friedman: stats.Chance | None, pairs: Sequence[RankedPair], least_p_holm: float
) -> Iterator[str]:
    """What the tests say, or that so few data sets can say nothing."""
    yield f"{first.first.protocol}, {len(first.datasets)} data sets"
    if friedman:
        verb = "differ" if friedman.p_value < _ALPHA else "are not shown to differ"
        yield f"mean ranks {verb} (Friedman p {p_text(friedman.p_value)}, {friedman.words})"
    if least_p_holm >= _ALPHA:
        needed = 1 + ceil(log2(len(pairs) / _ALPHA))
        bound = f"no p is below {p_text(least_p_holm)} after Holm's correction"
        yield f"too few data sets to tell any pair of mixers apart: {bound}; it takes {needed}"
    else:
        clear = [
            f"{pair.first} and {pair.second} differ (p {p_text(pair.adjusted)})"
            for pair in pairs
            if pair.verdict == "distinguishable"
        ]
        yield ", ".join(clear) or "no two mixers are distinguishable over data sets"
    if any(pair.unequal for pair in pairs):
        yield "mixers were tuned unequally"
