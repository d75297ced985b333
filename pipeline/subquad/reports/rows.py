"""Rows of the table: runs that differ in nothing but their seed, and guesses that they recorded.
Other protocols and settings are rows of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from subquad.plugin.metric import Metric
from subquad.reports import stats
from subquad.reports.reported_run import (
    ReportedRun,
    Tuning,
    printable,
    varying,
    with_alternative,
)
from subquad.reports.text import Ends, Setting, Spread, Values, grouped, in_order, short_setting

_BASE: Setting = (("", "base"),)
"""Setting of the row around which a study changes one setting at a time."""


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
    samples: int | None = None
    counted: tuple[ReportedRun, ...] = ()

    @property
    def family(self) -> tuple[str, str]:
        """Data set and protocol: what lines are compared within."""
        return self.dataset, self.protocol

    @property
    def first(self) -> ReportedRun:
        """The run that speaks for all."""
        return (*self.counted, *self.runs)[0]

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
    def is_reference(self) -> bool:
        """Whether it is a guess without a model."""
        return False

    @property
    def tuning(self) -> Tuning | None:
        """What was spent on its settings; None where it is not of a search."""
        return None

    def tested(self, metric: str) -> Spread | None:
        """A metric of the test split."""
        return Spread.of(run.score(metric) for run in self.counted)

    @property
    def besides(self) -> dict[str, Spread | None]:
        """Other metrics of the test split that are shown, by name."""
        return {name: self.tested(name) for name in self.first.tested[1:]}

    def interval(self, metric: str) -> Ends | None:
        """A metric's 95 % interval over the test samples, means over the seeds."""
        low = self.tested(f"{metric}_low")
        high = self.tested(f"{metric}_high")
        if low and high and low.count == high.count == len(self.counted):
            return low.mean, high.mean
        return None

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the runs say a reader of their numbers must know, each once."""
        return tuple(dict.fromkeys(note for run in self.runs for note in run.notes))

    @property
    def is_stand_in(self) -> bool:
        """Whether its data only stand in for the real ones."""
        return any("stand-in" in note for note in self.notes)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRow(TableLine):
    """Runs that differ in nothing but their seed.

    Attributes:
        setting: what tells this row from others of the same data set, mixer and protocol.
    """

    setting: Setting

    @property
    def mixer(self) -> str:
        """The plugin's name."""
        return self.first.mixer

    @property
    def protocol_label(self) -> str:
        """What the protocol means, by the run that opened the test split most often."""
        return max(self.runs, key=lambda run: run.openings).protocol_label or self.protocol

    def measured(self, name: str) -> Spread | None:
        """An attribute of the counted runs, such as `seconds`."""
        return Spread.of(getattr(run, name) for run in self.counted)

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

    @property
    def is_base(self) -> bool:
        """Whether a study changes one setting at a time around it."""
        return self.setting == _BASE

    def is_called(self, name: str) -> bool:
        """Whether a study's baseline of this name is this row."""
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
        counted = {run.folder for run in self.counted}
        states = Counter[str]()
        for run in self.runs:
            state, reason = run.state(is_counted=run.folder in counted)
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
    """

    key: str
    value: float

    @property
    def name(self) -> str:
        return f"reference: {self.label}"

    def interval(self, metric: str) -> Ends | None:
        """Of a share of answers Wilson's, of others what the data set gives."""
        if metric == self.metric and self.compared.answers:
            return stats.wilson(self.value, self.samples or 1)
        return super().interval(metric)

    @property
    def is_reference(self) -> bool:
        return True

    @property
    def reach(self) -> Ends:
        """The interval; the value twice where there is none."""
        return self.interval(self.metric) or (self.value, self.value)

    def tested(self, metric: str) -> Spread | None:
        """What the guess scores by a metric."""
        kept = self.first.reference_scores
        value = kept.scores.get(metric, {}).get(self.key) if kept else None
        return None if value is None else Spread(value, None, 0)


def make_rows(runs: Sequence[ReportedRun]) -> list[TableRow]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups = grouped(runs, lambda run: (run.data_label, run.protocol, run.label))
    return [row for names in sorted(groups, key=_with_numbers) for row in _rows_of(groups[names])]


def _with_numbers(names: Sequence[str]) -> list[list[tuple[float, str]]]:
    """Sort key of names by the numbers in them: k2 before k16."""
    return [list(map(in_order, re.split(r"(\d+)", name))) for name in names]


def _rows_of(runs: list[ReportedRun]) -> list[TableRow]:
    keys = varying(run.settings for run in runs)

    def setting_of(run: ReportedRun) -> Setting:
        return tuple((printable(key), printable(value)) for key, value in run.at(keys))

    variants = grouped(runs, setting_of)
    shorter = _by_change(list(variants))
    rows = [_row(shorter[setting], members) for setting, members in variants.items()]
    rows.sort(key=lambda row: [(key, *in_order(value)) for key, value in row.setting])
    return rows


def _by_change(variants: Sequence[Setting]) -> Mapping[Setting, Setting]:
    """Shorter settings where all variants but a base differ from it in one thing: that thing.

    Two settings and more must be varied: along a single one no value is a base.
    """
    for base in variants:
        changes = {variant: _changes(variant, base) for variant in variants if variant != base}
        varied = {name for change in changes.values() for name, _ in change}
        if len(varied) > 1 and {1} == set(map(len, changes.values())):
            return {**changes, base: _BASE}
    return {variant: variant for variant in variants}


def _changes(variant: Setting, base: Setting) -> Setting:
    """What differs; of two settings that switch each other off the one that is given."""
    found = [part for part, other in zip(variant, base, strict=True) if part != other]
    names = {name for name, _ in found}
    return tuple(
        (name, value)
        for name, value in found
        if value != "null" or len(with_alternative(name) & names) == 1
    )


def _row(setting: Setting, runs: Sequence[ReportedRun]) -> TableRow:
    # of several runs with one seed the newest counts, because folders are named by their time
    newest = {
        run.seed: run
        for run in sorted(runs, key=lambda run: run.folder.name)
        if run.score(run.compared) is not None
    }
    counted = tuple(newest[seed] for seed in sorted(newest))
    first = next((run for run in runs if run.status not in ("unfinished", "damaged")), runs[0])
    return TableRow(
        dataset=first.data_label,
        label=first.label,
        protocol=first.protocol,
        setting=setting,
        metric=first.compared,
        runs=tuple(runs),
        counted=counted,
        score=Spread.of(run.score(first.compared) for run in counted),
        samples=next((run.test.samples for run in (*counted, *runs) if run.test), None),
    )


def make_references(rows: Sequence[TableRow]) -> Iterator[Reference]:
    """Those of each data set and protocol, of what is compared there, in the order of the rows,
    the worst first.
    """
    blocks = grouped(rows, lambda row: (*row.family, row.metric))
    for (dataset, protocol, metric), members in blocks.items():
        everyone = [run for row in members for run in row.counted]
        guesses = [
            (value, key, run.reference_scores.samples, run)
            for run in everyone
            if run.reference_scores
            for key, value in run.reference_scores.scores.get(metric, {}).items()
        ]
        kept = grouped(guesses, lambda guess: guess[:3])
        times = Counter(key for _, key, _ in kept)
        for value, key, samples in sorted(kept, reverse=members[0].compared.mode == "min"):
            runs = [run for *_, run in kept[value, key, samples]]
            which = _which(runs, everyone) if times[key] > 1 else ""
            words = printable(key.replace("_", " "))
            yield Reference(
                dataset=dataset,
                protocol=protocol,
                label=f"{words} ({which})" if which else words,
                key=key,
                metric=metric,
                value=value,
                score=Spread(value, None, 0),
                samples=samples,
                runs=tuple(runs),
            )


def _which(members: Sequence[ReportedRun], everyone: Sequence[ReportedRun]) -> str:
    """The data set's settings that these runs share and others do not have, or else how many
    runs they are.
    """
    shared = set(varying(run.settings for run in everyone))
    shared -= set(varying(run.settings for run in members))
    if keys := sorted(key for key in shared if key.startswith("dataset.")):
        return printable(short_setting(members[0].at(keys)))
    return f"{len(members)} of {len(everyone)} runs"


def make_examples(rows: Sequence[TableRow]) -> list[Values]:
    """What the mixers wrote, by data set and sample."""
    texts = [
        {
            "kind": "example",
            "dataset": row.dataset,
            "mixer": row.name,
            "sample": number,
            **dict(example),
        }
        for row in rows
        for number, example in enumerate(row.first.examples, 1)
    ]
    return sorted(texts, key=lambda text: (_with_numbers([text["dataset"]]), text["sample"]))
