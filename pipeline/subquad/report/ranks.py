"""Mixers over several data sets: ranks, and whether they would rank so on others. Method: docs/reference/report.md.

D data sets, k mixers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from math import factorial
from typing import Literal

import numpy as np

from subquad.metric import Metric
from subquad.report import stats
from subquad.report.references import Mean
from subquad.report.text import DASH
from subquad.report.tuning import unequal

_ALPHA = 0.05

RANK_METHOD = (
    "Over data sets each data set counts once, by its mean test score, and the question is about other data sets of "
    "this kind. Pairs: Wilcoxon's signed-rank test with Holm's correction over all pairs. All mixers: Friedman's test. "
    "In the diagram mixers under one bar are not further apart than Nemenyi's critical difference (CD) at 5 %."
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
        return f"Mean ranks over {len(self.datasets)} data sets ({self.protocol}): {self.compared.label}"

    @property
    def least(self) -> tuple[float, float]:
        """The least p-value of a pair that so many data sets allow, and the same after Holm's correction."""
        least = 2.0 ** (1 - len(self.datasets))
        return least, min(1.0, least * len(self.pairs))

    @property
    def groups(self) -> list[tuple[int, int]]:
        """First and last place in `mixers` of the largest groups within the critical difference."""
        spans = [
            (first, max(last for last, rank in enumerate(self.ranks) if rank - self.ranks[first] <= self.critical))
            for first in range(len(self.ranks))
        ]
        return [
            one for number, one in enumerate(spans) if one[1] > one[0] and one[1] not in {e for _, e in spans[:number]}
        ]

    @property
    def sentence(self) -> str:
        """What the tests say, and what so few data sets can say at all."""
        sets, parts = f"{len(self.datasets)} data sets", list[str]()
        if self.friedman is not None:
            p_value = self.friedman.p_value
            verb = "differ" if p_value < _ALPHA else "are not shown to differ"
            bound = factorial(len(self.mixers)) ** (1.0 - len(self.datasets))
            told = f"; so few data sets allow no less than {p_text(bound)}" if bound > 0.001 else ""
            whose = f"the mean ranks of {len(self.mixers)} mixers"
            how = self.friedman.words
            parts.append(f"{whose} {verb} over {sets} (Friedman p {p_text(p_value)}, {how}{told})")
        clear = [one for one in self.pairs if one.verdict == "distinguishable"]
        least, corrected = self.least
        bound = f"{sets} allow no p below {p_text(least)}, after Holm's correction {p_text(corrected)}"
        if corrected >= _ALPHA:
            parts.append(f"too few data sets to tell any pair of mixers apart: {bound}; it takes {self._needed}")
        elif clear:
            parts.append(f"{', '.join(map(_told, clear))}; {bound}")
        else:
            parts.append(f"no two mixers are distinguishable over data sets; {bound}")
        if any(one.unequal for one in self.pairs):
            parts.append("mixers were tuned unequally")
        if drawn := next((one.chance for one in self.pairs if not one.chance.counted), None):
            parts.append(f"p of pairs with equal differences is {drawn.words}")
        return f"{self.protocol}: {'; '.join(parts)}"

    @property
    def _needed(self) -> int:
        """Data sets that would allow a verdict."""
        return next(number for number in count(2) if len(self.pairs) * 2.0 ** (1 - number) < _ALPHA)


def _told(one: RankedPair) -> str:
    return f"{one.first} and {one.second} differ (p {p_text(one.adjusted)})"


def p_text(p_value: float) -> str:
    """`0.031`, `< 0.001`."""
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def make_rankings(means: Sequence[Mean], baseline: str) -> Iterator[Ranking]:
    """One for each protocol and metric with two mixers and more on all of its data sets."""
    complete = [one for one in means if not one.is_reference and not one.others]
    for protocol, metric in dict.fromkeys((one.protocol, one.metric) for one in complete):
        members = [one for one in complete if (one.protocol, one.metric) == (protocol, metric)]
        if len(members) > 1:
            yield _ranking(sorted(members, key=lambda one: one.name == baseline))


def _ranking(members: Sequence[Mean]) -> Ranking:
    from scipy.stats import rankdata

    scores = np.array([one.by_dataset for one in members]).T
    good = scores if members[0].compared.mode == "max" else -scores
    ranks = rankdata(-good.round(9), axis=1)
    mean, datasets = ranks.mean(axis=0), members[0].datasets
    order = np.argsort(mean, kind="stable")
    return Ranking(
        protocol=members[0].protocol,
        metric=members[0].metric,
        compared=members[0].compared,
        datasets=datasets,
        mixers=tuple(members[place].name for place in order),
        ranks=tuple(float(mean[place]) for place in order),
        friedman=stats.friedman(ranks) if len(members) > 2 else None,
        critical=stats.critical_difference(len(members), len(datasets)),
        pairs=tuple(_pairs(members, scores, good)),
    )


def _pairs(members: Sequence[Mean], scores: np.ndarray, good: np.ndarray) -> Iterator[RankedPair]:
    """All of them, the last member second in its pairs."""
    pairs = list(combinations(range(len(members)), 2))
    chances = [stats.signed_rank(good[:, one] - good[:, other]) for one, other in pairs]
    holm = stats.holm([chance.p_value for chance in chances])
    few = len(pairs) * 2.0 ** (1 - len(scores)) >= _ALPHA
    for (one, other), chance, adjusted in zip(pairs, chances, holm, strict=True):
        gaps = (good[:, one] - good[:, other]).round(9)
        yield RankedPair(
            first=members[one].name,
            second=members[other].name,
            difference=float((scores[:, one] - scores[:, other]).mean()),
            wins=(int((gaps > 0).sum()), int((gaps < 0).sum())),
            chance=chance,
            adjusted=adjusted,
            unequal=tuple(_tuned_unequally(members[one], members[other])),
            verdict="too few data sets" if few else "distinguishable" if adjusted < _ALPHA else "not distinguishable",
        )


def _tuned_unequally(first: Mean, second: Mean) -> Iterator[str]:
    for dataset, mine, other in zip(first.datasets, first.tunings, second.tunings, strict=True):
        if unequal(mine, other):
            yield dataset


def rank_cells(ranking: Ranking, one: RankedPair) -> dict[str, str]:
    """A line of the table of pairs."""
    metric = ranking.compared
    return {
        "pair": f"{one.first} − {one.second}",
        "protocol": ranking.protocol,
        "data sets": str(len(ranking.datasets)),
        "better on": f"{one.wins[0]} : {one.wins[1]}",
        "mean difference": metric.points(one.difference),
        "p": p_text(one.chance.p_value),
        "p (Holm)": p_text(one.adjusted),
        "verdict": one.verdict,
        "notes": f"unequal tuning on {', '.join(one.unequal)}" if one.unequal else DASH,
    }
