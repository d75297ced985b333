"""What a report consists of. Other modules make these parts from runs, and show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from subquad.output.terminal import DASH
from subquad.plugin.metric import Metric
from subquad.reports import stats
from subquad.reports.published import Beside, PublishedRow
from subquad.reports.reported_run import ReportedRun, Tuning, unequal
from subquad.reports.text import Ends, Setting, Spread, Values, short_setting

BASE: Setting = (("", "base"),)
"""Setting of the row around which a study changes one setting at a time."""

_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class TableLine:
    """A line of the table.

    Attributes:
        label: the mixer's name in tables, or the guess's.
        metric: of the test split, what is compared. What selects checkpoints may be another.
        runs: all runs, whatever became of them.
        score: the metric on the test split.
        samples: of the test split.
        counted: the finished runs behind the means, one a seed.
    """

    dataset: str
    protocol: str
    label: str
    metric: str
    runs: tuple[ReportedRun, ...]
    score: Spread | None
    samples: int | None
    counted: tuple[ReportedRun, ...] = ()

    @property
    def family(self) -> tuple[str, str]:
        """Data set and protocol: what lines are compared within."""
        return self.dataset, self.protocol

    @property
    def first(self) -> ReportedRun:
        """The run that speaks for all."""
        return self.runs[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the counted runs."""
        return tuple(run.seed for run in self.counted)

    @property
    def compared(self) -> Metric:
        """How what is compared is called and printed."""
        return self.first.shown(self.metric)

    @property
    def name(self) -> str:
        """What its line is called."""
        return self.label

    @property
    def tuning(self) -> Tuning | None:
        """What was spent on its settings; None where it is not of a search."""
        return None

    def tested(self, metric: str) -> Spread | None:
        """A metric of the test split."""
        return Spread.of(run.score(metric) for run in self.counted)

    def interval(self, metric: str) -> Ends | None:
        """A metric's 95 % interval over the test samples, means over the seeds."""
        low = self.tested(f"{metric}_low")
        high = self.tested(f"{metric}_high")
        if low and high and low.count == high.count == len(self.counted):
            return low.mean, high.mean
        return None

    def is_called(self, name: str) -> bool:
        """Whether a study's baseline of this name is this line; a guess always stands apart."""
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRow(TableLine):
    """Runs that differ in nothing but their seed.

    Attributes:
        setting: what tells this row from others of the same data set, mixer and protocol.
    """

    setting: Setting

    @property
    def first(self) -> ReportedRun:
        return (*self.counted, *self.runs)[0]

    @property
    def mixer(self) -> str:
        """The plugin's name."""
        return self.first.mixer

    @property
    def settings(self) -> Mapping[str, str]:
        """All that the score may depend on, by dotted key."""
        return self.runs[0].settings

    @property
    def protocol_label(self) -> str:
        """What the protocol means, by the run that opened the test split most often."""
        return max(self.runs, key=lambda run: run.openings).protocol_meaning

    def measured(self, name: str) -> Spread | None:
        """An attribute of the counted runs, such as `seconds`."""
        return Spread.of(getattr(run, name) for run in self.counted)

    @property
    def besides(self) -> dict[str, Spread | None]:
        """Other metrics of the test split that are shown, by name."""
        return {name: self.tested(name) for name in self.first.tested[1:]}

    @property
    def last_score(self) -> Spread | None:
        """After the last epoch, where the protocol reports the best test score over epochs."""
        if self.protocol != "paper":
            return None
        return Spread.of(run.metrics_on("test", run.last).get(self.metric) for run in self.counted)

    @property
    def validation(self) -> Spread | None:
        """What selects the checkpoints, on the validation split; None where a run has none."""
        spread = Spread.of(
            run.metrics_on("validation", run.best).get(run.metric) for run in self.counted
        )
        return spread if spread and spread.count == len(self.counted) else None

    @property
    def best_epochs(self) -> tuple[float, ...]:
        """Epoch of the chosen checkpoint, per seed."""
        return tuple(run.best.epoch for run in self.counted if run.best)

    @property
    def tuning(self) -> Tuning | None:
        """Of different ones it is not known."""
        different = {run.tuning for run in self.counted or self.runs}
        return different.pop() if len(different) == 1 else Tuning()

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the runs say a reader of their numbers must know, each once."""
        return tuple(dict.fromkeys(note for run in self.runs for note in run.notes))

    @property
    def is_stand_in(self) -> bool:
        """Whether its data only stand in for the real ones."""
        return any("stand-in" in note for note in self.notes)

    @property
    def is_base(self) -> bool:
        """Whether a study changes one setting at a time around it."""
        return self.setting == BASE

    def is_called(self, name: str) -> bool:
        return name in (self.label, self.mixer)

    @property
    def name(self) -> str:
        """The mixer with what tells it from its variants."""
        if not self.setting:
            return self.label
        return f"{self.label} ({'base' if self.is_base else short_setting(self.setting)})"

    @property
    def benchmark(self) -> str:
        """What published tables call the data set."""
        return self.first.published_keys.get("benchmark", self.first.dataset)

    def status(self, *, reasons: bool = True) -> str:
        """What became of the runs: `2 finished, 1 failed (three non-finite steps in a row)`.

        Args:
            reasons: say why, in brackets.
        """
        states = Counter[str]()
        for run in self.runs:
            state, reason = run.state(is_counted=any(run is counted for counted in self.counted))
            states[f"{state} ({reason})" if reason and reasons else state] += 1
        order = sorted(states, key=lambda state: (state != "finished", state))
        return ", ".join(f"{states[state]} {state}" for state in order)


def meanings(rows: Iterable[TableRow]) -> list[str]:
    """What each protocol means."""
    return sorted({f"{row.protocol}: {row.protocol_label}" for row in rows})


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference(TableLine):
    """A line of a guess that needs no trained model; its runs recorded it.

    Attributes:
        key: the guess's name in result.json.
        value: of what is compared, on the test split.
        which: tells it from the same guess on other data of the same name; else empty.
    """

    key: str
    value: float
    which: str

    @property
    def name(self) -> str:
        return f"reference: {self.label}"

    def interval(self, metric: str) -> Ends | None:
        """Of a share of answers Wilson's, of others what the data set gives."""
        if metric == self.metric and self.compared.answers:
            return stats.wilson(self.value, self.samples or 1)
        return super().interval(metric)

    @property
    def reach(self) -> Ends:
        """The interval; the value twice where there is none."""
        return self.interval(self.metric) or (self.value, self.value)

    def tested(self, metric: str) -> Spread | None:
        """What the guess scores by a metric."""
        kept = self.first.reference_scores
        value = kept.scores.get(metric, {}).get(self.key) if kept else None
        return None if value is None else Spread(value, None, 0)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """One mixer's, or one guess's, mean over data sets; each data set weighs the same.

    Attributes:
        name: the mixer's label, or the reference's name.
        others: the other data sets of the table with this protocol and metric.
        score: mean and spread over seeds of the mean over data sets; where data sets have other
            seeds than each other, and for references, the mean alone, of 0 seeds.
        lines: those of its data sets, in order.
        by_dataset: the mean on each.
    """

    name: str
    others: tuple[str, ...]
    score: Spread
    lines: tuple[TableLine, ...]
    by_dataset: tuple[float, ...]

    @property
    def first(self) -> TableLine:
        return self.lines[0]

    @property
    def is_reference(self) -> bool:
        """Whether it is a guess without a model."""
        return isinstance(self.lines[0], Reference)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Over which, in order."""
        return tuple(line.dataset for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two rows, first minus second.

    Attributes:
        estimate: None where nothing can be said.
        seeds: seeds behind the estimate.
        basis: what the estimate is about: new ones of these.
        notes: what limits the comparison.
        adjusted: the p-value after Holm's correction over the pairs of one data set and protocol.
    """

    first: TableRow
    second: TableRow
    estimate: stats.Estimate | None
    seeds: int
    basis: Literal["test samples and seeds", "test samples", "seeds", "none"]
    notes: tuple[str, ...]
    adjusted: float | None = None

    @property
    def verdict(self) -> Literal["distinguishable", "not distinguishable", "not enough seeds"]:
        """Distinguishable only if the interval excludes 0 and the adjusted p is below 0.05."""
        if self.estimate is None or self.adjusted is None:
            return "not enough seeds"
        is_clear = self.estimate.low > 0 or self.estimate.high < 0
        return "distinguishable" if is_clear and self.adjusted < _ALPHA else "not distinguishable"

    @property
    def estimate_texts(self) -> tuple[str, str]:
        """Difference and interval: `27.3`, `[24.1, 30.5]`."""
        if self.estimate is None:
            return DASH, DASH
        metric = self.first.compared
        interval = metric.interval(self.estimate.low, self.estimate.high)
        return metric.points(self.estimate.difference), interval

    @property
    def unequal(self) -> str:
        """How what was spent on the settings of the two differs; "" where it does not."""
        return unequal(self.first.tuning, self.second.tuning)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One setting's values with everything else the same.

    Attributes:
        key: the setting.
        rows: in the order of its values.
        at: what tells the rows from those of other curves over the same setting.
        comparisons: pairs of the rows; corrected over these.
        beside: for each row the published rows of its value.
        printed: every published value of the setting, with its row.
        sentence: what it says.
    """

    key: str
    rows: tuple[TableRow, ...]
    at: Setting
    comparisons: tuple[Comparison, ...]
    beside: Mapping[TableRow, Sequence[Beside]]
    printed: Sequence[tuple[float, PublishedRow]]
    sentence: str = ""

    @property
    def name(self) -> str:
        """The last word of the setting."""
        return self.key.rpartition(".")[2]

    @property
    def selection(self) -> Metric:
        """What selects checkpoints, and is known of the validation split."""
        first = self.rows[0].first
        return first.shown(first.metric)

    @property
    def title(self) -> str:
        """`recall, mine (honest): order`, with what else tells it from others."""
        first = self.rows[0]
        title = f"{first.dataset}, {first.label} ({first.protocol}): {self.name}"
        return f"{title} at {short_setting(self.at)}" if self.at else title

    def value(self, row: TableRow) -> str:
        """A row's value of the setting."""
        return row.settings.get(self.key, "none")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        rows: the table.
        comparisons: pairs of rows.
        references: rows of guesses without a model.
        means: over data sets.
        rankings: of mixers over data sets.
        curves: settings that take several values with all others the same.
        headlines: a sentence for each data set and protocol, and one against its best reference
            score.
        examples: what each row wrote for samples, as in JSON.
        runs: every run, in the order read.
        beside: published rows of each row: those that change the same setting to its value, else
            the main tables'.
        baseline: label of the mixer that others are held against; "" where there is none.
        match: what a study among them made alike for all mixers; "" where nothing.
    """

    rows: tuple[TableRow, ...]
    comparisons: tuple[Comparison, ...]
    references: tuple[Reference, ...]
    means: tuple[Mean, ...]
    rankings: tuple[stats.Ranking, ...]
    curves: tuple[Curve, ...]
    headlines: tuple[str, ...]
    examples: tuple[Values, ...]
    runs: tuple[ReportedRun, ...]
    beside: Mapping[TableRow, Sequence[Beside]]
    baseline: str
    match: str = ""
