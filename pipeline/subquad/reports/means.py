"""Mixers over several data sets: means, ranks, and whether they would rank so on others. Method:
docs/reference/report.md.

D data sets, k mixers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import ceil, factorial, fsum, log2

import numpy as np

from subquad.reports import stats
from subquad.reports.model import Mean, Reference, TableLine, TableRow
from subquad.reports.reported_run import unequal
from subquad.reports.stats import RankedPair, Ranking
from subquad.reports.text import Spread, p_text

_ALPHA = 0.05


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of
    them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it
    has a score on every data set in question, so that all means in a block are over the same data.
    """
    blocks = defaultdict[tuple[str, str], dict[tuple[bool, str], list[TableLine]]](dict)
    for row in rows:
        blocks[row.protocol, row.metric].setdefault((False, row.label), []).append(row)
    for guess in references:
        blocks[guess.protocol, guess.metric].setdefault((True, guess.key), []).append(guess)
    for block_of, groups in blocks.items():
        names = _datasets([row for row in rows if (row.protocol, row.metric) == block_of])
        guessed = [lines for (is_guess, _), lines in groups.items() if is_guess]
        for datasets in dict.fromkeys((names, *map(_datasets, guessed))):
            block = list(filter(None, [_mean(datasets, names, lines) for lines in groups.values()]))
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
    groups = defaultdict[tuple[str, str], list[Mean]](list)
    for mean in means:
        if not (mean.is_reference or mean.others):
            groups[mean.first.protocol, mean.first.metric].append(mean)
    for members in groups.values():
        if len(members) > 1:
            yield _ranking(sorted(members, key=lambda mean: mean.name == baseline))


def _ranking(members: Sequence[Mean]) -> Ranking:
    from scipy.stats import rankdata

    first = members[0]
    count = len(members)
    scores = np.array([member.by_dataset for member in members]).T
    good = scores if first.first.compared.mode == "max" else -scores
    ranks = rankdata(-good.round(9), axis=1)
    mean = ranks.mean(axis=0)
    order = np.argsort(mean, kind="stable")
    friedman = stats.friedman(ranks) if count > 2 else None
    least_p = 2.0 ** (1 - len(scores))
    pairs = tuple(_pairs(members, scores, good, least_p))
    least_p_holm = min(1.0, least_p * len(pairs))
    return Ranking(
        protocol=first.first.protocol,
        metric=first.first.metric,
        compared=first.first.compared,
        datasets=first.datasets,
        mixers=tuple(members[place].name for place in order),
        ranks=tuple(mean[order].tolist()),
        friedman=friedman,
        critical=stats.critical_difference(count, len(scores)),
        least_p=least_p,
        least_p_holm=least_p_holm,
        pairs=pairs,
        sentence=f"{first.first.protocol}: {'; '.join(_sentence(ranks, friedman, pairs, least_p))}",
    )


def _pairs(
    members: Sequence[Mean], scores: np.ndarray, good: np.ndarray, least_p: float
) -> Iterator[RankedPair]:
    """All of them, the last member second in its pairs."""
    pairs = list(combinations(range(len(members)), 2))
    gaps = [good[:, first] - good[:, second] for first, second in pairs]
    chances = list(map(stats.signed_rank, gaps))
    holm = stats.holm([chance.p_value for chance in chances])
    for (first, second), gap, chance, adjusted in zip(pairs, gaps, chances, holm, strict=True):
        mine = members[first].lines
        others = members[second].lines
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
                for line, other in zip(mine, others, strict=True)
                if unequal(line.tuning, other.tuning)
            ),
            verdict="too few data sets" if len(pairs) * least_p >= _ALPHA else verdict,
        )


def _sentence(
    ranks: np.ndarray, friedman: stats.Chance | None, pairs: Sequence[RankedPair], least_p: float
) -> Iterator[str]:
    """What the tests say, and what so few data sets can say at all."""
    datasets, mixers = ranks.shape
    if friedman:
        verb = "differ" if friedman.p_value < _ALPHA else "are not shown to differ"
        test = f"Friedman p {p_text(friedman.p_value)}, {friedman.words}"
        bound = factorial(mixers) ** (1.0 - datasets)
        if bound > 0.001:
            test += f"; so few data sets allow no less than {p_text(bound)}"
        yield f"the mean ranks of {mixers} mixers {verb} over {datasets} data sets ({test})"
    least = min(1.0, least_p * len(pairs))
    bound = f"{datasets} data sets allow no p below {p_text(least_p)}"
    bound += f", after Holm's correction {p_text(least)}"
    if least >= _ALPHA:
        needed = 1 + ceil(log2(len(pairs) / _ALPHA))
        yield f"too few data sets to tell any pair of mixers apart: {bound}; it takes {needed}"
    else:
        clear = [
            f"{pair.first} and {pair.second} differ (p {p_text(pair.adjusted)})"
            for pair in pairs
            if pair.verdict == "distinguishable"
        ]
        yield ", ".join(clear) or "no two mixers are distinguishable over data sets"
        yield bound
    if any(pair.unequal for pair in pairs):
        yield "mixers were tuned unequally"
    for words in {pair.chance.words: None for pair in pairs if not pair.chance.counted}:
        yield f"p of pairs with equal differences is {words}"
