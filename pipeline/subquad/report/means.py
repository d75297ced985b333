"""Means over data sets: what tables of many problems are usually read for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from subquad.report.oracles import METRIC, Oracle
from subquad.report.rows import Row
from subquad.report.text import Spread


@dataclass(frozen=True, kw_only=True)
class Mean:
    """One mixer's, or one oracle's, mean over data sets; each data set weighs the same.

    Attributes:
        name: the mixer's label, or the oracle's.
        protocol: of all of its numbers.
        metric: that is averaged.
        datasets: over which, in order.
        others: the other data sets of the table with this protocol and metric.
        score: mean and spread over seeds of the mean over data sets; where data sets have other seeds than each other,
            and for oracles, the mean alone, of 0 seeds.
        oracle: whether it is a guess without a model.
    """

    name: str
    protocol: str
    metric: str
    datasets: tuple[str, ...]
    others: tuple[str, ...]
    score: Spread
    oracle: bool = False


def make_means(rows: Sequence[Row], oracles: Sequence[Oracle]) -> list[Mean]:
    """Means over all data sets of a protocol, then over those of each oracle that only some of them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it has a score on
    every data set in question, so that all means in a block are over the same data.
    """
    found: list[Mean] = []
    for protocol, metric in dict.fromkeys((row.protocol, row.metric) for row in rows):
        members = [row for row in rows if (row.protocol, row.metric) == (protocol, metric)]
        names = tuple(dict.fromkeys(row.dataset for row in members))
        guesses = [one for one in oracles if one.protocol == protocol and metric == METRIC and one.dataset in names]
        for datasets in _blocks(names, guesses):
            others = tuple(name for name in names if name not in datasets)
            block = [*_of_mixers(members, datasets, others), *_of_oracles(guesses, datasets, others)]
            found += block if any(not one.oracle for one in block) else []
    return found


def _blocks(names: tuple[str, ...], oracles: Sequence[Oracle]) -> list[tuple[str, ...]]:
    """All data sets, and the data sets of each oracle, each combination of two and more once."""
    of_oracles = [
        tuple(name for name in names if any((one.key, one.dataset) == (key, name) for one in oracles))
        for key in dict.fromkeys(one.key for one in oracles)
    ]
    return [block for block in dict.fromkeys([names, *of_oracles]) if len(block) > 1]


def _of_mixers(rows: Sequence[Row], datasets: tuple[str, ...], others: tuple[str, ...]) -> Iterable[Mean]:
    for label in dict.fromkeys(row.label for row in rows):
        own = [row for row in rows if row.label == label and row.dataset in datasets]
        if tuple(row.dataset for row in own) == datasets and all(row.score for row in own):
            first = own[0]
            yield Mean(
                name=label,
                protocol=first.protocol,
                metric=first.metric,
                datasets=datasets,
                others=others,
                score=_over_seeds(own),
            )


def _over_seeds(rows: Sequence[Row]) -> Spread:
    seeds = rows[0].seeds
    if any(row.seeds != seeds for row in rows):
        return Spread(fsum(row.score.mean for row in rows if row.score) / len(rows), None, 0)
    scores = [[cell.score(row.metric) or 0.0 for cell in row.counted] for row in rows]
    spread = Spread.of([fsum(column) / len(rows) for column in zip(*scores, strict=True)])
    assert spread is not None
    return spread


def _of_oracles(oracles: Sequence[Oracle], datasets: tuple[str, ...], others: tuple[str, ...]) -> Iterable[Mean]:
    for key in dict.fromkeys(one.key for one in oracles):
        own = [one for one in oracles if one.key == key and one.dataset in datasets]
        if tuple(one.dataset for one in own) == datasets:
            mean = Spread(fsum(one.accuracy for one in own) / len(own), None, 0)
            yield Mean(
                name=own[0].name,
                protocol=own[0].protocol,
                metric=METRIC,
                datasets=datasets,
                others=others,
                score=mean,
                oracle=True,
            )
