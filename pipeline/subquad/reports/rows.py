"""Rows of the table: runs that differ in nothing but their seed. Other protocols and settings
are rows of their own.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from subquad.experiment.settings import ALTERNATIVES
from subquad.plugin.metric import Metric
from subquad.reports.reported_run import ReportedRun
from subquad.reports.text import Ends, Spread, printable
from subquad.reports.tuning import Tuning, common

Setting = tuple[tuple[str, str], ...]
"""What tells rows apart: dotted keys with their values as text."""

_BASE: Setting = (("", "base"),)
"""Setting of the row around which a study changes one setting at a time."""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row.

    Attributes:
        label: the mixer's name in tables.
        mixer: the plugin's name.
        setting: what tells this row from others of the same data set, mixer and protocol: keys with
            their values.
        settings: all that the score may depend on, by dotted key.
        metric: of the test split, what is compared. What selects checkpoints may be another:
            `first.metric`.
        runs: all runs, whatever became of them.
        counted: the finished runs behind the means, one a seed.
        score: the metric on the test split.
        besides: other metrics of the test split that are shown, by name.
        last_score: the same after the last epoch, where the protocol reports the best test score
            over epochs.
        validation: what selects the checkpoints, on the validation split; None where a run has
            none.
        seconds: training time.
        seconds_per_step: median of each run.
        tokens_per_second: trained on, where the task's weights are tokens.
        peak_memory_bytes: of the tensors on a GPU, else of the process.
        samples: of the test split.
        tuning: what was spent on its settings; None where it is not of a search.
    """

    dataset: str
    label: str
    mixer: str
    protocol: str
    protocol_label: str
    setting: Setting
    settings: Mapping[str, str]
    metric: str
    runs: tuple[ReportedRun, ...]
    counted: tuple[ReportedRun, ...]
    score: Spread | None
    last_score: Spread | None
    validation: Spread | None
    besides: Mapping[str, Spread | None]
    seconds: Spread | None
    seconds_per_step: Spread | None
    tokens_per_second: Spread | None
    peak_memory_bytes: Spread | None
    parameters: int | None
    flops_per_step: int | None
    samples: int | None
    tuning: Tuning | None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the counted runs."""
        return tuple(run.seed for run in self.counted)

    @property
    def best_epochs(self) -> tuple[float, ...]:
        """Epoch of the chosen checkpoint, per seed."""
        return tuple(run.best.epoch for run in self.counted if run.best)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the runs say a reader of their numbers must know, each once."""
        notes: dict[str, None] = {}
        for run in self.runs:
            notes |= dict.fromkeys(run.notes)
        return tuple(notes)

    @property
    def family(self) -> tuple[str, str]:
        """Data set and protocol: what rows are compared within."""
        return self.dataset, self.protocol

    @property
    def is_stand_in(self) -> bool:
        """Whether its data only stand in for the real ones."""
        return "stand-in" in " ".join(self.notes)

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
        which = "base" if self.is_base else short_setting(self.setting)
        return f"{self.label} ({which})"

    @property
    def first(self) -> ReportedRun:
        """The run that speaks for all."""
        runs = self.counted or self.runs
        return runs[0]

    def shown(self, metric: str) -> Metric:
        """How a metric of the runs is called and printed."""
        return self.first.shown(metric)

    @property
    def compared(self) -> Metric:
        """How what is compared is called and printed."""
        return self.shown(self.metric)

    def interval(self, metric: str) -> Ends | None:
        """Ends of a metric's 95 % interval over the test samples as the runs give them, means
        over the seeds.
        """
        runs = self.counted
        low = Spread.of(run.score(f"{metric}_low") for run in runs)
        high = Spread.of(run.score(f"{metric}_high") for run in runs)
        if low is None or high is None:
            return None
        if low.count == high.count == len(runs):
            return low.mean, high.mean
        return None

    @property
    def benchmark(self) -> str:
        """What published tables call the data set."""
        first = self.first
        return first.published_keys.get("benchmark", first.dataset)

    def status(self, *, reasons: bool = True) -> str:
        """What became of the runs: `2 finished, 1 failed (three non-finite steps in a row)`.

        Args:
            reasons: say why, in brackets.
        """
        states = Counter[str]()
        for run in self.runs:
            state, reason = self._state(run)
            if reason and reasons:
                state += f" ({reason})"
            states[state] += 1
        order = sorted(states, key=lambda state: (state != "finished", state))
        return ", ".join(f"{states[state]} {state}" for state in order)

    def _state(self, run: ReportedRun) -> tuple[str, str | None]:
        """The state and its reason."""
        is_finished = run.status == "finished"
        if run.faults:
            reasons = filter(None, (run.reason, *run.faults))
            return "not verified" if is_finished else run.status, "; ".join(reasons)
        is_counted = any(run is counted for counted in self.counted)
        if is_counted or not is_finished:
            return run.status, run.reason
        if run.score(run.compared) is None:
            return "finished without a test score", None
        return "finished again", "a newer run of the seed counts"


def make_rows(runs: Sequence[ReportedRun]) -> list[TableRow]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups = defaultdict[tuple[str, str, str], list[ReportedRun]](list)
    for run in runs:
        groups[run.data_label, run.protocol, run.label].append(run)
    rows: list[TableRow] = []
    for names in sorted(groups, key=lambda names: list(map(_by_numbers, names))):
        rows += _rows_of(groups[names])
    return rows


def _by_numbers(name: str) -> list[tuple[float, str]]:
    """Sort key of names, the numbers in them in their order: k2 before k16."""
    return list(map(in_order, re.split(r"(\d+)", name)))


def _rows_of(runs: list[ReportedRun]) -> list[TableRow]:
    keys = varying(run.settings for run in runs)
    variants = defaultdict[Setting, list[ReportedRun]](list)
    for run in runs:
        setting = []
        for key in keys:
            value = run.settings.get(key, "none")
            setting.append((printable(key), printable(value)))
        variants[tuple(setting)].append(run)
    shorter = _by_change(list(variants))
    rows = [_row(shorter[setting], members) for setting, members in variants.items()]
    return sorted(rows, key=_by_setting)


def _by_setting(row: TableRow) -> list[tuple[str, float, str]]:
    """Sort key of rows: the values of their settings in order."""
    places = []
    for key, value in row.setting:
        number, word = in_order(value)
        places.append((key, number, word))
    return places


def _by_change(variants: Sequence[Setting]) -> dict[Setting, Setting]:
    """Shorter settings where all variants but a base differ from it in one thing: that thing.

    Two settings and more must be varied: along a single one no value is a base.
    """
    for base in variants:
        shorter = {base: _BASE}
        varied = set[str]()
        for variant in variants:
            if variant == base:
                continue
            change = _changes(variant, base)
            if len(change) != 1:
                break
            shorter[variant] = change
            name, _ = change[0]
            varied.add(name)
        if len(shorter) == len(variants) and len(varied) > 1:
            return shorter
    return dict(zip(variants, variants, strict=True))


def _changes(variant: Setting, base: Setting) -> Setting:
    """What differs; of two settings that switch each other off the one that is given."""
    found = []
    names = set[str]()
    for part, other in zip(variant, base, strict=True):
        if part != other:
            name, _ = part
            found.append(part)
            names.add(name)
    changes = []
    for name, value in found:
        alternatives = with_alternative(name) & names
        if value != "null" or len(alternatives) == 1:
            changes.append((name, value))
    return tuple(changes)


def _row(setting: Setting, runs: Sequence[ReportedRun]) -> TableRow:
    first = next((run for run in runs if run.has_result), runs[0])
    most_opened = max(runs, key=lambda run: run.openings)
    counted = _one_per_seed(runs)
    tested = [run.test for run in (*counted, *runs) if run.test]
    measured = counted[0] if counted else None

    def mean(name: str) -> Spread | None:
        return Spread.of(getattr(run, name) for run in counted)

    def score(metric: str) -> Spread | None:
        return Spread.of(run.score(metric) for run in counted)

    last_score = None
    if first.protocol == "paper":
        last_score = Spread.of(run.last_score(first.compared) for run in counted)
    return TableRow(
        dataset=first.data_label,
        label=first.label,
        mixer=first.mixer,
        protocol=first.protocol,
        protocol_label=most_opened.protocol_meaning,
        setting=setting,
        settings=runs[0].settings,
        metric=first.compared,
        runs=tuple(runs),
        counted=counted,
        score=score(first.compared),
        last_score=last_score,
        validation=_validation(counted, first.metric),
        besides={name: score(name) for name in first.tested[1:]},
        seconds=mean("seconds"),
        seconds_per_step=mean("seconds_per_step"),
        tokens_per_second=mean("tokens_per_second"),
        peak_memory_bytes=mean("peak_memory_bytes"),
        parameters=measured and measured.parameters,
        flops_per_step=measured and measured.flops_per_step,
        samples=tested[0].samples if tested else None,
        tuning=common(run.tuning for run in counted or runs),
    )


def _validation(runs: Sequence[ReportedRun], metric: str) -> Spread | None:
    """None where a run has none."""
    spread = Spread.of(run.validation_score(metric) for run in runs)
    if spread and spread.count == len(runs):
        return spread
    return None


def _one_per_seed(runs: Sequence[ReportedRun]) -> tuple[ReportedRun, ...]:
    """Finished runs by seed; of several with one seed the newest, because folders are named by
    their time.
    """
    newest = {}
    for run in sorted(runs, key=lambda run: run.folder.name):
        if run.score(run.compared) is not None:
            newest[run.seed] = run
    return tuple(newest[seed] for seed in sorted(newest))


def varying(group: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Keys whose values differ within a group of settings, sorted."""
    members = list(group)
    keys = set[str]().union(*members)
    varied = []
    for key in sorted(keys):
        if len({member.get(key) for member in members}) > 1:
            varied.append(key)
    return tuple(varied)


def short_setting(setting: Setting) -> str:
    """`order=4, lr=0.001`: the last word of each key."""
    words = []
    for key, value in setting:
        _, _, name = key.rpartition(".")
        words.append(f"{name}={value}")
    return ", ".join(words)


def with_alternative(key: str) -> set[str]:
    """A key, and the one that is switched off where it is given: `train.epochs` with
    `train.steps`.
    """
    for pair in ALTERNATIVES:
        keys = set[str]()
        for path in pair:
            keys.add(".".join(map(str, path)))
        if key in keys:
            return keys
    return {key}


def in_order(text: str) -> tuple[float, str]:
    """Sort key of values: numbers in their order, words after them."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text
