"""Reference scores: rows of guesses that need no trained model, and which mixers score above the best of them.

Method: docs/reference/report.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Literal

from subquad.report import stats
from subquad.report.rows import TableRow
from subquad.report.run import ReportedRun
from subquad.report.settings import short_setting, varying
from subquad.report.text import in_points, interval, printable

REFERENCE_METRIC = "accuracy"
REFERENCE_MEANING = (
    "a guess without a trained model, learned on TRAIN: accuracy [95 % interval over the test samples, Wilson's]"
)
_CHOSEN_ON_TEST = "; these scores were chosen on the test split"


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


def reference_sentence(rows: Sequence[TableRow], references: Sequence[Reference]) -> str:
    """For the rows and references of one data set and protocol; empty where there is nothing to say."""
    judged = [row for row in rows if row.metric == REFERENCE_METRIC and row.score is not None]
    best = [_best_of(row, references) for row in judged]
    pairs = list(zip(judged, best, strict=True))
    parts = [_against(one, own) for one in references if (own := [row for row, found in pairs if found is one])]
    if parts and (missing := [row.name for row, found in pairs if found is None]):
        parts.append(f"no reference score recorded beside {', '.join(missing)}")
    chosen = parts and any(row.protocol == "paper" for row in judged)
    return "; ".join(parts) + (_CHOSEN_ON_TEST if chosen else "")


def _best_of(row: TableRow, references: Sequence[Reference]) -> Reference | None:
    """The reference with the highest upper end among those of the row's own runs."""
    own = {run.folder for run in row.counted}
    found = [one for one in references if own & {run.folder for run in one.runs}]
    return max(found, key=lambda one: one.interval[1], default=None)


def _judge(row: TableRow, reference: Reference) -> Literal["above", "not above", "few seeds"]:
    """Above: the lower end of the row's 95 % interval lies over the upper end of the reference's."""
    assert row.score is not None
    high = reference.interval[1]
    if row.score.mean <= high:
        return "not above"
    low = _lower_end(row, reference.samples)
    return "few seeds" if low is None else "above" if low > high else "not above"


def _lower_end(row: TableRow, samples: int) -> float | None:
    """Lower end of an accuracy's 95 % interval over seeds and test samples, None with one seed.

    The distances of Student's t over the seeds and Wilson's over the samples, added in squares (Newcombe, 1998).
    """
    score = row.score
    if score is None or score.std is None:
        return None
    of_seeds = stats.t_quantile(score.count - 1.0) * score.std / sqrt(score.count)
    return score.mean - hypot(of_seeds, score.mean - stats.wilson(score.mean, samples)[0])


def _against(reference: Reference, rows: Sequence[TableRow]) -> str:
    share, ends = in_points(reference.accuracy, REFERENCE_METRIC), interval(*reference.interval, REFERENCE_METRIC)
    what, parts = f"the best reference score ({reference.words} {share} % {ends})", list[str]()
    for verdict, start, end in (
        ("above", "above", ""),
        ("not above", "not shown to be above", " (scores up to it need no trained model)"),
        ("few seeds", "not enough seeds to place above", "; run more than one seed of each"),
    ):
        if names := [row.name for row in rows if _judge(row, reference) == verdict]:
            parts.append(f"{start} {'it' if parts else what}: {', '.join(names)}{end}")
    return "; ".join(parts)
