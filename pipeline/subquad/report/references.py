"""Reference scores: rows of guesses that need no trained model.

Method: docs/reference/report.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from subquad.report import stats
from subquad.report.rows import TableRow, short_setting, varying
from subquad.report.run import ReportedRun
from subquad.report.text import printable

REFERENCE_METRIC = "accuracy"
REFERENCE_MEANING = (
    "a guess without a trained model, learned on TRAIN: accuracy [95 % interval over the test samples, Wilson's]"
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One row.

    Attributes:
        key: the guess's name in result.json.
        which: tells it from the same guess on other data of the same name; else empty.
        accuracy: on the test split, in [0, 1].
        samples: test samples.
        runs: the runs that recorded it.
    """

    dataset: str
    protocol: str
    key: str
    which: str
    accuracy: float
    samples: int
    runs: tuple[ReportedRun, ...]

    @property
    def family(self) -> tuple[str, str]:
        return self.dataset, self.protocol

    @property
    def words(self) -> str:
        """`root operator`."""
        return printable(self.key.replace("_", " ")) + (f" ({self.which})" if self.which else "")

    @property
    def name(self) -> str:
        """Its name in the column of mixers."""
        return f"reference: {self.words}"

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval over the test samples."""
        return stats.wilson(self.accuracy, self.samples)


def make_references(rows: Sequence[TableRow]) -> list[Reference]:
    """Those of each data set and protocol, in the order of the rows, the lowest first."""
    families = dict.fromkeys(row.family for row in rows)
    return [one for family in families for one in _of_family(family, rows)]


def _of_family(family: tuple[str, str], rows: Sequence[TableRow]) -> list[Reference]:
    found: dict[tuple[float, str, int], list[ReportedRun]] = {}
    runs = [run for row in rows if row.family == family for run in row.counted]
    for run in runs:
        kept = run.result.reference_scores if run.result else None
        for key, accuracy in kept.accuracy.items() if kept else ():
            found.setdefault((accuracy, key, kept.samples if kept else 0), []).append(run)
    times = Counter(key for _, key, _ in found)
    return [
        Reference(
            dataset=family[0],
            protocol=family[1],
            key=key,
            which=_which(found[accuracy, key, samples], runs) if times[key] > 1 else "",
            accuracy=accuracy,
            samples=samples,
            runs=tuple(found[accuracy, key, samples]),
        )
        for accuracy, key, samples in sorted(found)
    ]


def _which(members: list[ReportedRun], everyone: list[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many runs they are."""
    differing = set(varying(run.settings for run in everyone))
    shared = differing - set(varying(run.settings for run in members))
    keys = sorted(key for key in shared if key.startswith("dataset."))
    setting = tuple((key, members[0].settings.get(key, "none")) for key in keys)
    return printable(short_setting(setting)) if setting else f"{len(members)} of {len(everyone)} runs"
