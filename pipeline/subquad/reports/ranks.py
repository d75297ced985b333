"""Mixers over several data sets: ranks, and whether they would rank so on others. Method:
docs/reference/report.md.

D data sets, k mixers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, factorial, log2
from typing import Literal

import numpy as np

from subquad.output.terminal import DASH
from subquad.plugin.metric import Metric
from subquad.reports import stats
from subquad.reports.references import Mean
from subquad.reports.tuning import unequal

_ALPHA = 0.05

RANK_METHOD = (
    "Over data sets each data set counts once, by its mean test score, and the "
    "question is about other data sets of "
    "this kind. Pairs: Wilcoxon's signed-rank test with Holm's correction over all "
    "pairs. All mixers: Friedman's test. "
    "In the picture mixers whose bars overlap are not further apart than Nemenyi's "
    "critical difference at 5 %."
)


@dataclass(frozen=True, kw_only=True)
class RankedPair:
    """Two mixers over data sets, first minus second.

    Attributes:
        difference: mean over the data sets.
        wins: data sets on which the first is better, and the second.
        chance: Wilcoxon's.
        adjusted: after Holm's correction.
        unequal: data sets on which what was spent on the settings of the two differs.
    """

    first: str
    second: str
    difference: float
    wins: tuple[int, int]
    chance: stats.Chance
    adjusted: float
    verdict: Literal["distinguishable", "not distinguishable", "too few data sets"]
    unequal: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Mixers that have a score on every data set of a protocol.

    Attributes:
        compared: how the metric is called and printed.
        mixers: the best mean rank first.
        ranks: mean rank of each; 1 is best.
        friedman: chance of no difference between them, None for two mixers, which are a pair.
        critical: Nemenyi's critical difference of mean ranks.
    """

    protocol: str
    metric: str
    compared: Metric
    datasets: tuple[str, ...]
    mixers: tuple[str, ...]
    ranks: tuple[float, ...]
    friedman: stats.Chance | None
    critical: float
    pairs: tuple[RankedPair, ...]

    @property
    def title(self) -> str:
        """`Mean ranks over 5 data sets (honest): accuracy`."""
        over = f"{len(self.datasets)} data sets ({self.protocol})"
        return f"Mean ranks over {over}: {self.compared.label}"

    @property
    def least_p(self) -> float:
        """The least p-value of a pair that so many data sets allow."""
        return 2.0 ** (1 - len(self.datasets))

    @property
    def least_p_holm(self) -> float:
        """The same after Holm's correction."""
        return min(1.0, self.least_p * len(self.pairs))

    @property
    def sentence(self) -> str:
        """What the tests say, and what so few data sets can say at all."""
        parts = []
        if self.friedman:
            parts.append(self._friedman_words(self.friedman))
        least = p_text(self.least_p)
        bound = f"allow no p below {least}, after Holm's correction {p_text(self.least_p_holm)}"
        if self.least_p_holm >= _ALPHA:
            odds = len(self.pairs) / _ALPHA
            bound = f"{bound}; it takes {1 + ceil(log2(odds))}"
        parts.append(f"{self._pair_words()}{len(self.datasets)} data sets {bound}")
        if any(pair.unequal for pair in self.pairs):
            parts.append("mixers were tuned unequally")
        for pair in self.pairs:
            if not pair.chance.counted:
                parts.append(f"p of pairs with equal differences is {pair.chance.words}")
                break
        words = "; ".join(parts)
        return f"{self.protocol}: {words}"

    def _friedman_words(self, chance: stats.Chance) -> str:
        mixers = len(self.mixers)
        datasets = len(self.datasets)
        verb = "are not shown to differ"
        if chance.p_value < _ALPHA:
            verb = "differ"
        test = f"Friedman p {p_text(chance.p_value)}, {chance.words}"
        bound = factorial(mixers) ** (1.0 - datasets)
        if bound > 0.001:
            test += f"; so few data sets allow no less than {p_text(bound)}"
        return f"the mean ranks of {mixers} mixers {verb} over {datasets} data sets ({test})"

    def _pair_words(self) -> str:
        if self.least_p_holm >= _ALPHA:
            return "too few data sets to tell any pair of mixers apart: "
        clear = [
            f"{pair.first} and {pair.second} differ (p {p_text(pair.adjusted)})"
            for pair in self.pairs
            if pair.verdict == "distinguishable"
        ]
        words = ", ".join(clear) or "no two mixers are distinguishable over data sets"
        return f"{words}; "


def p_text(p_value: float) -> str:
    """`0.031`, `< 0.001`."""
    if p_value < 0.0005:
        return "< 0.001"
    return f"{p_value:.3f}"


def make_rankings(means: Sequence[Mean], baseline: str) -> Iterator[Ranking]:
    """One for each protocol and metric with two mixers and more on all of its data sets."""
    groups = defaultdict[tuple[str, str], list[Mean]](list)
    for mean in means:
        if mean.is_reference or mean.others:
            continue
        groups[mean.protocol, mean.metric].append(mean)
    for members in groups.values():
        if len(members) > 1:
            members.sort(key=lambda mean: mean.name == baseline)
            yield _ranking(members)


def _ranking(members: Sequence[Mean]) -> Ranking:
    from scipy.stats import rankdata

    first = members[0]
    count = len(members)
    scores = np.array([member.by_dataset for member in members]).T
    good = scores if first.compared.mode == "max" else -scores
    ranks = rankdata(-good.round(9), axis=1)
    mean = ranks.mean(axis=0)
    order = np.argsort(mean, kind="stable")
    mixers = [members[place].name for place in order]
    return Ranking(
        protocol=first.protocol,
        metric=first.metric,
        compared=first.compared,
        datasets=first.datasets,
        mixers=tuple(mixers),
        ranks=tuple(mean[order].tolist()),
        friedman=stats.friedman(ranks) if count > 2 else None,
        critical=stats.critical_difference(count, len(first.datasets)),
        pairs=tuple(_pairs(members, scores, good)),
    )


def _pairs(members: Sequence[Mean], scores: np.ndarray, good: np.ndarray) -> Iterator[RankedPair]:
    """All of them, the last member second in its pairs."""
    pairs = list(combinations(range(len(members)), 2))
    gaps = [good[:, first] - good[:, second] for first, second in pairs]
    chances = list(map(stats.signed_rank, gaps))
    holm = stats.holm([chance.p_value for chance in chances])
    least_p = 2.0 ** (1 - len(scores))
    are_few = len(pairs) * least_p >= _ALPHA
    for (first, second), gap, chance, adjusted in zip(pairs, gaps, chances, holm, strict=True):
        mine = members[first]
        other = members[second]
        difference = scores[:, first] - scores[:, second]
        signs = np.sign(gap.round(9)).tolist()
        verdict = "not distinguishable"
        if are_few:
            verdict = "too few data sets"
        elif adjusted < _ALPHA:
            verdict = "distinguishable"
        yield RankedPair(
            first=mine.name,
            second=other.name,
            difference=float(difference.mean()),
            wins=(signs.count(1), signs.count(-1)),
            chance=chance,
            adjusted=adjusted,
            unequal=tuple(_tuned_unequally(mine, other)),
            verdict=verdict,
        )


def _tuned_unequally(first: Mean, second: Mean) -> Iterator[str]:
    for dataset, mine, other in zip(first.datasets, first.tunings, second.tunings, strict=True):
        if unequal(mine, other):
            yield dataset


def rank_cells(ranking: Ranking, pair: RankedPair) -> dict[str, str]:
    """A line of the table of pairs."""
    notes = DASH
    if pair.unequal:
        datasets = ", ".join(pair.unequal)
        notes = f"unequal tuning on {datasets}"
    return {
        "pair": f"{pair.first} − {pair.second}",
        "protocol": ranking.protocol,
        "data sets": str(len(ranking.datasets)),
        "better on": "{} : {}".format(*pair.wins),
        "mean difference": ranking.compared.points(pair.difference),
        "p": p_text(pair.chance.p_value),
        "p (Holm)": p_text(pair.adjusted),
        "verdict": pair.verdict,
        "notes": notes,
    }
