"""Rows of guesses that need no trained model, from the runs they were recorded in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from subquad.report import settings, stats
from subquad.report.cells import Cell
from subquad.report.rows import Row
from subquad.report.text import clean

METRIC = "accuracy"

MEANING = "a guess without a trained model, learned on TRAIN: accuracy [95 % interval over the test samples, Wilson's]"

_WORDS = {
    "majority": ("majority class", "need no input"),
    "root_operator": ("root operator", "need no composition"),
    "one_nn": ("1-NN", "need no training"),
}
"""What tables call the guesses of the built-in data sets, and what scores up to theirs do without."""


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """One row.

    Attributes:
        key: the guess's name in result.json.
        which: tells it from the same guess on other data of the same name; else empty.
        accuracy: on the test split, in [0, 1].
        samples: test samples.
        cells: the runs that recorded it.
    """

    dataset: str
    protocol: str
    key: str
    which: str
    accuracy: float
    samples: int
    cells: tuple[Cell, ...]

    @property
    def words(self) -> str:
        """`root operator`."""
        known = _WORDS.get(self.key)
        return (known[0] if known else clean(self.key.replace("_", " "))) + (f" ({self.which})" if self.which else "")

    @property
    def name(self) -> str:
        """Its name in the column of mixers."""
        return f"oracle: {self.words}"

    @property
    def needless(self) -> str:
        """What scores up to it do without."""
        return _WORDS.get(self.key, ("", "need no model"))[1]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval over the test samples."""
        return stats.wilson(self.accuracy, self.samples)


def make_oracles(rows: Sequence[Row]) -> list[Oracle]:
    """Those of each data set and protocol, in the order of the rows, the lowest first."""
    families = dict.fromkeys((row.dataset, row.protocol) for row in rows)
    return [one for family in families for one in _of_family(*family, rows)]


def _of_family(dataset: str, protocol: str, rows: Sequence[Row]) -> list[Oracle]:
    found: dict[tuple[float, str, int], list[Cell]] = {}
    cells = [cell for row in rows if (row.dataset, row.protocol) == (dataset, protocol) for cell in row.counted]
    for cell in cells:
        kept = cell.result.oracles if cell.result else None
        for key, accuracy in kept.accuracy.items() if kept else ():
            found.setdefault((accuracy, key, kept.samples if kept else 0), []).append(cell)
    times = Counter(key for _, key, _ in found)
    return [
        Oracle(
            dataset=dataset,
            protocol=protocol,
            key=key,
            which=_which(found[accuracy, key, samples], cells) if times[key] > 1 else "",
            accuracy=accuracy,
            samples=samples,
            cells=tuple(found[accuracy, key, samples]),
        )
        for accuracy, key, samples in sorted(found)
    ]


def _which(members: list[Cell], everyone: list[Cell]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many runs they are."""
    differing = set(settings.varying(cell.settings for cell in everyone))
    shared = differing - set(settings.varying(cell.settings for cell in members))
    keys = sorted(key for key in shared if key.startswith("dataset."))
    setting = tuple((key, members[0].settings.get(key, "none")) for key in keys)
    return clean(settings.short(setting)) if setting else f"{len(members)} of {len(everyone)} runs"
