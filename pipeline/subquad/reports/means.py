"""Mixers over several data sets: means, ranks, and whether they would rank so on others. Method:
docs/reference/report.md.

D data sets, k mixers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import ceil, fsum, log2
from typing import Literal

import numpy as np

from subquad.reports import stats
from subquad.reports.reported_run import unequal
from subquad.reports.rows import Reference, TableLine, TableRow
from subquad.reports.text import Spread, grouped, p_text

AVERAGE = "\n"
"""The data set of a mean, which no data set can be called: names are of one line."""
_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean(TableLine):
    """One mixer's, or one guess's, mean over data sets; each data set weighs the same. Its score:
    mean and spread over seeds of the mean over data sets; where data sets have other seeds than
    each other, and for references, the mean alone, of 0 seeds.

    Attributes:
        others: the other data sets of the table with this protocol and metric.
        lines: those of its data sets, in order.
        by_dataset: the mean on each.
    """

    score: Spread  # pyright: ignore[reportIncompatibleVariableOverride]
    others: tuple[str, ...]
    lines: tuple[TableLine, ...]
    by_dataset: tuple[float, ...]

    @property
    def is_reference(self) -> bool:
        return self.lines[0].is_reference

    @property
    def datasets(self) -> tuple[str, ...]:
        """Over which, in order."""
        return _datasets(self.lines)


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

    first: Mean
    second: Mean
    difference: float
    wins: tuple[int, int]
    chance: stats.Chance
    adjusted: float
    verdict: Literal["distinguishable", "not distinguishable", "too few data sets"]
    unequal: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Mixers that have a score on every data set of a protocol.

    Attributes:
        means: theirs, the best mean rank first.
        ranks: mean rank of each; 1 is best.
        friedman: chance of no difference between them, None for two mixers, which are a pair.
        critical: Nemenyi's critical difference of mean ranks.
        least_p: the least p-value of a pair that so many data sets allow.
        least_p_holm: the same after Holm's correction.
    """

    means: tuple[Mean, ...]
    ranks: tuple[float, ...]
    friedman: stats.Chance | None
    critical: float
    least_p: float
    least_p_holm: float
    pairs: tuple[RankedPair, ...]

    @property
    def mixers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(mean.name for mean in self.means)

    @property
    def title(self) -> str:
        """`Mean ranks over 5 data sets (honest): accuracy`."""
        first = self.means[0]
        datasets = f"{len(first.lines)} data sets ({first.protocol})"
        return f"Mean ranks over {datasets}: {first.compared.label}"

    @property
    def sentence(self) -> str:
        """What the tests say, or that so few data sets can say nothing."""
        first = self.means[0]
        parts = [f"{first.protocol}, {len(first.lines)} data sets"]
        if self.friedman:
            chance = self.friedman
            verb = "differ" if chance.p_value < _ALPHA else "are not shown to differ"
            parts.append(f"mean ranks {verb} (Friedman p {p_text(chance.p_value)}, {chance.words})")
        clear = [
            f"{pair.first.name} and {pair.second.name} differ (p {p_text(pair.adjusted)})"
            for pair in self.pairs
            if pair.verdict == "distinguishable"
        ]
        if self.least_p_holm >= _ALPHA:
            needed = 1 + ceil(log2(len(self.pairs) / _ALPHA))
            bound = f"no p is below {p_text(self.least_p_holm)} after Holm's correction"
            parts.append("too few data sets to tell any pair of mixers apart: " + bound)
            parts.append(f"it takes {needed}")
        else:
            parts.append(", ".join(clear) or "no two mixers are distinguishable over data sets")
        if any(pair.unequal for pair in self.pairs):
            parts.append("mixers were tuned unequally")
        return "; ".join(parts)


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of
    them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it
    has a score on every data set in question, so that all means in a block are over the same data.
    """
    blocks = grouped((*rows, *references), lambda line: (line.protocol, line.metric))
    for lines in blocks.values():
        names = _datasets([line for line in lines if not line.is_reference])
        groups = grouped(
            lines, lambda line: (line.is_reference, getattr(line, "key", line.label))
        ).items()
        guessed = [_datasets(members) for (is_reference, _), members in groups if is_reference]
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
        dataset=AVERAGE,
        protocol=first.protocol,
        label=first.name if first.is_reference else first.label,
        metric=first.metric,
        runs=tuple(chain.from_iterable(line.runs for line in lines)),
        counted=tuple(chain.from_iterable(line.counted for line in lines)),
        score=Spread.of(by_seed) or Spread(fsum(values) / len(values), None, 0),
        others=tuple(name for name in names if name not in datasets),
        lines=lines,
        by_dataset=values,
    )


def make_rankings(means: Sequence[Mean], baseline: str) -> Iterator[Ranking]:
    """One for each protocol and metric with two mixers and more on all of its data sets."""
    whole = [mean for mean in means if not (mean.is_reference or mean.others)]
    for members in grouped(whole, lambda mean: (mean.protocol, mean.metric)).values():
        if len(members) > 1:
            yield _ranking(sorted(members, key=lambda mean: mean.name == baseline))


def _ranking(members: Sequence[Mean]) -> Ranking:
    """Its pairs have the last member second."""
    from scipy.stats import rankdata

    scores = np.array([member.by_dataset for member in members])
    good = scores if members[0].compared.mode == "max" else -scores
    ranks = rankdata(-good.round(9), axis=0)
    mean_ranks = ranks.mean(axis=1)
    order = mean_ranks.argsort(kind="stable")
    pairs = list(combinations(range(len(members)), 2))
    chances = [stats.signed_rank(good[place] - good[other]) for place, other in pairs]
    holm = stats.holm([chance.p_value for chance in chances])
    least_p = 2.0 ** (1 - len(scores.T))
    least_p_holm = min(1.0, least_p * len(pairs))
    ranked = []
    for (place, other), chance, adjusted in zip(pairs, chances, holm, strict=True):
        first, second = members[place], members[other]
        signs = np.sign((good[place] - good[other]).round(9)).tolist()
        verdict = "distinguishable" if adjusted < _ALPHA else "not distinguishable"
        both = zip(first.lines, second.lines, strict=True)
        ranked.append(
            RankedPair(
                first=first,
                second=second,
                difference=float((scores[place] - scores[other]).mean()),
                wins=(signs.count(1), signs.count(-1)),
                chance=chance,
                adjusted=adjusted,
                unequal=tuple(own.dataset for own, its in both if unequal(own.tuning, its.tuning)),
                verdict=verdict if least_p_holm < _ALPHA else "too few data sets",
            )
        )
    return Ranking(
        means=tuple(members[place] for place in order),
        ranks=tuple(mean_ranks[order].tolist()),
        friedman=stats.friedman(ranks.T) if len(members) > 2 else None,
        critical=stats.critical_difference(len(members), len(scores.T)),
        least_p=least_p,
        least_p_holm=least_p_holm,
        pairs=tuple(ranked),
    )
