"""Means over data sets: what tables of many problems are usually read for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from subquad.report.references import REFERENCE_METRIC, Reference
from subquad.report.rows import TableRow
from subquad.report.text import Spread


@dataclass(frozen=True, kw_only=True)
class Mean:
    """One mixer's, or one reference score's, mean over data sets; each data set weighs the same.

    Attributes:
        name: the mixer's label, or the reference's name.
        protocol: of all of its numbers.
        metric: that is averaged.
        datasets: over which, in order.
        others: the other data sets of the table with this protocol and metric.
        score: mean and spread over seeds of the mean over data sets; where data sets have other seeds than each other,
            and for references, the mean alone, of 0 seeds.
        is_reference: whether it is a guess without a model.
    """

    name: str
    protocol: str
    metric: str
    datasets: tuple[str, ...]
    others: tuple[str, ...]
    score: Spread
    is_reference: bool

    @property
    def over(self) -> str:
        """`all 9`, `8 of 9, not JapaneseVowels`, `2 of 9: ERing, Libras`."""
        if not self.others:
            return f"all {len(self.datasets)}"
        count = f"{len(self.datasets)} of {len(self.datasets) + len(self.others)}"
        few = len(self.others) <= len(self.datasets)
        return f"{count}, not {', '.join(self.others)}" if few else f"{count}: {', '.join(self.datasets)}"


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> list[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it has a score on
    every data set in question, so that all means in a block are over the same data.
    """
    found: list[Mean] = []
    for protocol, metric in dict.fromkeys((row.protocol, row.metric) for row in rows):
        members = [row for row in rows if (row.protocol, row.metric) == (protocol, metric)]
        names = tuple(dict.fromkeys(row.dataset for row in members))
        guesses = [one for one in references if one.protocol == protocol and metric == REFERENCE_METRIC]
        guesses = [one for one in guesses if one.dataset in names]
        for datasets in _blocks(names, guesses):
            block = [
                Mean(
                    name=name,
                    protocol=protocol,
                    metric=metric,
                    datasets=datasets,
                    others=tuple(one for one in names if one not in datasets),
                    score=score,
                    is_reference=is_reference,
                )
                for name, score, is_reference in (*_of_mixers(members, datasets), *_of_references(guesses, datasets))
            ]
            found += block if any(not one.is_reference for one in block) else []
    return found


def _blocks(names: tuple[str, ...], references: Sequence[Reference]) -> list[tuple[str, ...]]:
    """All data sets, and the data sets of each reference, each combination of two and more once."""
    of_references = [
        tuple(name for name in names if any((one.key, one.dataset) == (key, name) for one in references))
        for key in dict.fromkeys(one.key for one in references)
    ]
    return [block for block in dict.fromkeys([names, *of_references]) if len(block) > 1]


def _of_mixers(rows: Sequence[TableRow], datasets: tuple[str, ...]) -> Iterator[tuple[str, Spread, bool]]:
    for label in dict.fromkeys(row.label for row in rows):
        own = [row for row in rows if row.label == label and row.dataset in datasets]
        if tuple(row.dataset for row in own) == datasets and all(row.score for row in own):
            yield label, _over_seeds(own), False


def _over_seeds(rows: Sequence[TableRow]) -> Spread:
    seeds = rows[0].seeds
    if any(row.seeds != seeds for row in rows):
        return Spread(fsum(row.score.mean for row in rows if row.score) / len(rows), None, 0)
    scores = [[run.score(row.metric) or 0.0 for run in row.counted] for row in rows]
    spread = Spread.of(fsum(column) / len(rows) for column in zip(*scores, strict=True))
    assert spread is not None
    return spread


def _of_references(references: Sequence[Reference], datasets: tuple[str, ...]) -> Iterator[tuple[str, Spread, bool]]:
    for key in dict.fromkeys(one.key for one in references):
        own = [one for one in references if one.key == key and one.dataset in datasets]
        if tuple(one.dataset for one in own) == datasets:
            yield own[0].name, Spread(fsum(one.accuracy for one in own) / len(own), None, 0), True
