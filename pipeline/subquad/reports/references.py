"""Rows that no run of their own stands behind: guesses without a model, and means over data sets.

Method: docs/reference/report.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from subquad.plugin.metric import Metric, Mode
from subquad.reports import stats
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, short_setting, varying
from subquad.reports.text import Spread, printable
from subquad.reports.tuning import Tuning

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
        words = printable(self.key.replace("_", " "))
        if self.which:
            words += f" ({self.which})"
        return words

    @property
    def name(self) -> str:
        """Its name in the column of mixers."""
        return f"reference: {self.words}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval over the test samples: of a share of answers Wilson's, of others what
        the data set gives.
        """
        if self.compared.answers:
            return stats.wilson(self.value, self.samples)
        return self.given(self.metric)

    def given(self, metric: str) -> tuple[float, float] | None:
        """The interval of a metric that the data set gives."""
        low = self.score(f"{metric}_low")
        high = self.score(f"{metric}_high")
        if low is None or high is None:
            return None
        return low, high

    @property
    def reach(self) -> tuple[float, float]:
        """The interval; the value twice where there is none."""
        return self.interval or (self.value, self.value)

    def score(self, metric: str) -> float | None:
        """What the guess scores by another metric."""
        kept = self.runs[0].reference_scores
        if kept is None:
            return None
        return kept.scores.get(metric, {}).get(self.key)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """One mixer's, or one reference score's, mean over data sets; each data set weighs the same.

    Attributes:
        name: the mixer's label, or the reference's name.
        datasets: over which, in order.
        others: the other data sets of the table with this protocol and metric.
        score: mean and spread over seeds of the mean over data sets; where data sets have other
            seeds than each other, and for references, the mean alone, of 0 seeds.
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
        known = len(self.datasets)
        unknown = len(self.others)
        if not unknown:
            return f"all {known}"
        count = f"{known} of {known + unknown}"
        if unknown <= known:
            names = ", ".join(self.others)
            return f"{count}, not {names}"
        names = ", ".join(self.datasets)
        return f"{count}: {names}"


def make_references(rows: Sequence[TableRow]) -> Iterator[Reference]:
    """Those of each data set and protocol, of what is compared there, in the order of the rows,
    the worst first.
    """
    groups = defaultdict[tuple[str, str, str, Mode], list[ReportedRun]](list)
    for row in rows:
        groups[*row.family, row.metric, row.compared.mode] += row.counted
    for (dataset, protocol, metric, mode), runs in groups.items():
        found = defaultdict[tuple[float, str, int], list[ReportedRun]](list)
        for run in runs:
            kept = run.reference_scores
            if kept is None:
                continue
            for key, value in kept.scores.get(metric, {}).items():
                found[value, key, kept.samples].append(run)
        times = Counter(key for _, key, _ in found)
        for value, key, samples in sorted(found, reverse=mode == "min"):
            members = found[value, key, samples]
            which = ""
            if times[key] > 1:
                which = _which(members, runs)
            yield Reference(
                dataset=dataset,
                protocol=protocol,
                key=key,
                which=which,
                metric=metric,
                value=value,
                samples=samples,
                runs=tuple(members),
            )


def _which(members: Sequence[ReportedRun], everyone: Sequence[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many
    runs they are.
    """
    differing = varying(run.settings for run in members)
    setting = []
    for key in varying(run.settings for run in everyone):
        if key.startswith("dataset.") and key not in differing:
            setting.append((key, members[0].settings.get(key, "none")))
    if setting:
        return printable(short_setting(tuple(setting)))
    return f"{len(members)} of {len(everyone)} runs"


def make_means(rows: Sequence[TableRow], references: Sequence[Reference]) -> Iterator[Mean]:
    """Means over all data sets of a protocol, then over those of each reference that only some of
    them have.

    Rows of one metric with one variant of a mixer to a data set count. A mixer is averaged where it
    has a score on every data set in question, so that all means in a block are over the same data.
    """
    blocks = defaultdict[tuple[str, str], list[TableRow]](list)
    for row in rows:
        blocks[row.protocol, row.metric].append(row)
    for (protocol, metric), members in blocks.items():
        names = _datasets(members)
        mixers = defaultdict[str, list[TableRow | Reference]](list)
        for row in members:
            mixers[row.label].append(row)
        guesses = defaultdict[str, list[TableRow | Reference]](list)
        for guess in references:
            if guess.protocol == protocol and guess.metric == metric:
                guesses[guess.key].append(guess)
        groups = [*mixers.values(), *guesses.values()]
        for datasets in dict.fromkeys((names, *map(_datasets, guesses.values()))):
            if len(datasets) < 2:
                continue
            block = []
            for group in groups:
                mean = _mean_over(datasets, names, group)
                if mean:
                    block.append(mean)
            if not all(mean.is_reference for mean in block):
                yield from block


def _datasets(rows: Sequence[TableRow | Reference]) -> tuple[str, ...]:
    """Each once, in the order of the rows."""
    return tuple(dict.fromkeys(row.dataset for row in rows))


def _mean_over(
    datasets: tuple[str, ...], names: Sequence[str], group: Sequence[TableRow | Reference]
) -> Mean | None:
    """Over these data sets, of all `names`; None where the group has not one score on each."""
    among = [row for row in group if row.dataset in datasets]
    if tuple(row.dataset for row in among) != datasets:
        return None
    rows: list[TableRow] = []
    values: list[float] = []
    for row in among:
        if isinstance(row, Reference):
            values.append(row.value)
        elif row.score is None:
            return None
        else:
            rows.append(row)
            values.append(row.score.mean)
    first = among[0]
    is_reference = isinstance(first, Reference)
    return Mean(
        name=first.name if is_reference else first.label,
        protocol=first.protocol,
        metric=first.metric,
        datasets=datasets,
        others=tuple(name for name in names if name not in datasets),
        score=_score_of(rows, values),
        is_reference=is_reference,
        compared=first.compared,
        by_dataset=tuple(values),
        tunings=tuple(row.tuning for row in rows),
    )


def _score_of(rows: Sequence[TableRow], values: Sequence[float]) -> Spread:
    """With its spread over seeds, if they are the same everywhere."""
    alone = Spread(fsum(values) / len(values), None, 0)
    if len({row.seeds for row in rows}) != 1:
        return alone
    by_row = []
    for row in rows:
        by_row.append([run.score(row.metric) or 0.0 for run in row.counted])
    by_seed = []
    for scores in zip(*by_row, strict=True):
        by_seed.append(fsum(scores) / len(rows))
    return Spread.of(by_seed) or alone
