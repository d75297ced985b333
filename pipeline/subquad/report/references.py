"""Rows that no run of their own stands behind: guesses without a model, and means over data sets.

Method: docs/reference/report.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from subquad.metric import Metric
from subquad.report import stats
from subquad.report.rows import TableRow, short_setting, varying
from subquad.report.run import ReportedRun
from subquad.report.text import Spread, printable
from subquad.report.tuning import Tuning

REFERENCE_MEANING = "a guess without a trained model, learned on TRAIN or not at all"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A row of a guess that needs no trained model.

    Attributes:
        key: the guess's name in result.json.
        which: tells it from the same guess on other data of the same name; else empty.
        metric: what is compared on the data set.
        value: of that metric, on the test split.
        samples: test samples.
        runs: the runs that recorded it.
    """

    dataset: str
    protocol: str
    key: str
    which: str
    metric: str
    value: float
    samples: int
    runs: tuple[ReportedRun, ...]

    @property
    def family(self) -> tuple[str, str]:
        return self.dataset, self.protocol

    @property
    def compared(self) -> Metric:
        """How what is compared is called and printed."""
        return self.shown(self.metric)

    def shown(self, metric: str) -> Metric:
        """How a metric is called and printed."""
        return self.runs[0].shown(metric)

    @property
    def words(self) -> str:
        """`root operator`."""
        return printable(self.key.replace("_", " ")) + (f" ({self.which})" if self.which else "")

    @property
    def name(self) -> str:
        """Its name in the column of mixers."""
        return f"reference: {self.words}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval over the test samples: of a share of answers Wilson's, of others what the data set gives."""
        return stats.wilson(self.value, self.samples) if self.compared.answers else self.given(self.metric)

    def given(self, metric: str) -> tuple[float, float] | None:
        """The interval of a metric that the data set gives."""
        low, high = (self.score(f"{metric}_{end}") for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    @property
    def reach(self) -> tuple[float, float]:
        """The interval; the value twice where there is none."""
        return self.interval or (self.value, self.value)

    def score(self, metric: str) -> float | None:
        """What the guess scores by another metric."""
        kept = self.runs[0].reference_scores
        return kept.scores.get(metric, {}).get(self.key) if kept else None


@dataclass(frozen=True, kw_only=True)
class Mean:
    """One mixer's, or one reference score's, mean over data sets; each data set weighs the same.

    Attributes:
        name: the mixer's label, or the reference's name.
        datasets: over which, in order.
        others: the other data sets of the table with this protocol and metric.
        score: mean and spread over seeds of the mean over data sets; where data sets have other seeds than each other,
            and for references, the mean alone, of 0 seeds.
        is_reference: whether it is a guess without a model.
        compared: how the metric is called and printed.
        by_dataset: the mean on each data set.
        tunings: what was spent on its settings on each data set; none of a reference.
    """

    name: str
    protocol: str
    metric: str
    datasets: tuple[str, ...]
    others: tuple[str, ...]
    score: Spread
    is_reference: bool
    compared: Metric
    by_dataset: tuple[float, ...]
    tunings: tuple[Tuning | None, ...] = ()

    @property
    def over(self) -> str:
        """`all 9`, `8 of 9, not JapaneseVowels`, `2 of 9: ERing, Libras`."""
        if not self.others:
            return f"all {len(self.datasets)}"
        count = f"{len(self.datasets)} of {len(self.datasets) + len(self.others)}"
        few = len(self.others) <= len(self.datasets)
        return f"{count}, not {', '.join(self.others)}" if few else f"{count}: {', '.join(self.datasets)}"


def make_references(rows: Sequence[TableRow]) -> Iterator[Reference]:
    """Those of each data set and protocol, of what is compared there, in the order of the rows, the worst first."""
    for family, metric, mode in dict.fromkeys((row.family, row.metric, row.compared.mode) for row in rows):
        found: dict[tuple[float, str, int], list[ReportedRun]] = {}
        runs = [run for row in rows if (row.family, row.metric) == (family, metric) for run in row.counted]
        for run in runs:
            if kept := run.reference_scores:
                for key, value in kept.scores.get(metric, {}).items():
                    found.setdefault((value, key, kept.samples), []).append(run)
        times = Counter(key for _, key, _ in found)
        for (value, key, samples), members in sorted(found.items(), reverse=mode == "min"):
            yield Reference(
                dataset=family[0],
                protocol=family[1],
                key=key,
                which=_which(members, runs) if times[key] > 1 else "",
                metric=metric,
                value=value,
                samples=samples,
                runs=tuple(members),
            )


def _which(members: Sequence[ReportedRun], everyone: Sequence[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many runs they are."""
    shared = set(varying(run.settings for run in everyone)) - set(varying(run.settings for run in members))
    keys = sorted(key for key in shared if key.startswith("dataset."))
    setting = tuple((key, members[0].settings.get(key, "none")) for key in keys)
    return printable(short_setting(setting)) if setting else f"{len(members)} of {len(everyone)} runs"


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it has a score on
    every data set in question, so that all means in a block are over the same data.
    """
    for protocol, metric in dict.fromkeys((row.protocol, row.metric) for row in rows):
        groups: dict[tuple[bool, str], list[TableRow | Reference]] = {}
        members = [row for row in rows if (row.protocol, row.metric) == (protocol, metric)]
        names = tuple(dict.fromkeys(row.dataset for row in members))
        for row in members:
            groups.setdefault((False, row.label), []).append(row)
        for one in references:
            if (one.protocol, one.metric) == (protocol, metric) and one.dataset in names:
                groups.setdefault((True, one.key), []).append(one)
        guessed = [tuple(dict.fromkeys(one.dataset for one in own)) for (guess, _), own in groups.items() if guess]
        for datasets in dict.fromkeys([names, *guessed]):
            among = [[one for one in own if one.dataset in datasets] for own in groups.values()]
            block = [
                Mean(
                    name=own[0].name if isinstance(own[0], Reference) else own[0].label,
                    protocol=protocol,
                    metric=metric,
                    datasets=datasets,
                    others=tuple(one for one in names if one not in datasets),
                    score=score,
                    is_reference=isinstance(own[0], Reference),
                    compared=members[0].compared,
                    by_dataset=_by_dataset(own),
                    tunings=tuple(row.tuning for row in own if isinstance(row, TableRow)),
                )
                for own in among
                if tuple(one.dataset for one in own) == datasets and (score := _mean_of(own))
            ]
            if len(datasets) > 1 and any(not one.is_reference for one in block):
                yield from block


def _by_dataset(own: Sequence[TableRow | Reference]) -> tuple[float, ...]:
    """Scores in order, those that are missing left out."""
    found = (one.value if isinstance(one, Reference) else one.score and one.score.mean for one in own)
    return tuple(one for one in found if one is not None)


def _mean_of(own: Sequence[TableRow | Reference]) -> Spread | None:
    """With its spread over seeds, if they are the same everywhere; None where a score is missing."""
    rows, means = [one for one in own if isinstance(one, TableRow)], _by_dataset(own)
    if len(means) < len(own):
        return None
    if len({row.seeds for row in rows}) != 1:
        return Spread(fsum(means) / len(means), None, 0)
    scores = [[run.score(row.metric) or 0.0 for run in row.counted] for row in rows]
    return Spread.of(fsum(column) / len(rows) for column in zip(*scores, strict=True))
