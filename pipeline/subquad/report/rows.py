"""Rows of the table: runs that differ in nothing but their seed. Other protocols and settings are rows of their own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from subquad.experiment.settings import ALTERNATIVES
from subquad.report.run import ReportedRun, _Result
from subquad.report.text import Spread, printable

Setting = tuple[tuple[str, str], ...]
"""What tells rows apart: dotted keys with their values as text."""

BASE: Setting = (("", "base"),)
"""Setting of the row around which a study changes one setting at a time."""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row.

    Attributes:
        label: the mixer's name in tables.
        mixer: the plugin's name.
        setting: what tells this row from others of the same data set, mixer and protocol: keys with their values.
        metric: what selects checkpoints, and is compared.
        mode: whether its "max" or its "min" is best.
        runs: all runs, whatever became of them.
        counted: the finished runs behind the means, one a seed.
    """

    dataset: str
    label: str
    mixer: str
    protocol: str
    setting: Setting
    metric: str
    mode: str
    runs: tuple[ReportedRun, ...]
    counted: tuple[ReportedRun, ...]

    @property
    def family(self) -> tuple[str, str]:
        """Data set and protocol: what rows are compared within."""
        return self.dataset, self.protocol

    @property
    def is_base(self) -> bool:
        """Whether a study changes one setting at a time around it."""
        return self.setting == BASE

    def is_called(self, name: str) -> bool:
        """Whether a study's baseline of this name is this row."""
        return name in (self.label, self.mixer)

    @property
    def name(self) -> str:
        """The mixer with what tells it from its variants."""
        told = "base" if self.is_base else short_setting(self.setting)
        return f"{self.label} ({told})" if told else self.label

    @property
    def score(self) -> Spread | None:
        """The metric on the test split."""
        return Spread.of(run.score(self.metric) for run in self.counted)

    @property
    def last_score(self) -> Spread | None:
        """The same after the last epoch, where the protocol reports the best test score over epochs."""
        return Spread.of(run.last_score(self.metric) for run in self.counted) if self.protocol == "paper" else None

    @property
    def validation(self) -> Spread | None:
        """The metric of the chosen checkpoints on the validation split, None where a run has none."""
        found = Spread.of(run.validation_score(self.metric) for run in self.counted)
        return found if found and found.count == len(self.counted) else None

    @property
    def macro_f1(self) -> Spread | None:
        return Spread.of(run.score("macro_f1") for run in self.counted)

    @property
    def seconds(self) -> Spread | None:
        """Training time."""
        return Spread.of(result.seconds for result in self._results)

    @property
    def parameters(self) -> int | None:
        return next((result.parameters for result in self._results), None)

    @property
    def flops_per_step(self) -> int | None:
        return next((result.flops_per_step for result in self._results), None)

    @property
    def best_epochs(self) -> tuple[float, ...]:
        """Epoch of the chosen checkpoint, per seed."""
        return tuple(result.best.epoch for result in self._results if result.best)

    @property
    def protocol_label(self) -> str:
        """What the protocol means."""
        return self.runs[0].protocol_label

    @property
    def samples(self) -> int | None:
        """Samples of the test split."""
        return next((run.test_samples for run in self.counted), None)

    @property
    def settings(self) -> Mapping[str, str]:
        """All that the score may depend on, by dotted key."""
        return self.runs[0].settings

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.counted)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the runs say a reader of their numbers must know, each once."""
        found = (printable(note) for run in self.runs if run.result for note in run.result.notes)
        return tuple(dict.fromkeys(found))

    @property
    def _results(self) -> list[_Result]:
        return [run.result for run in self.counted if run.result]

    def status(self, *, reasons: bool = True) -> str:
        """What became of the runs: `2 finished, 1 failed (three non-finite steps in a row)`.

        Args:
            reasons: say why, in brackets.
        """
        counted = {run.folder for run in self.counted}
        found = (_state(run, run.folder in counted) for run in self.runs)
        states = Counter(f"{state} ({reason})" if reason and reasons else state for state, reason in found)
        order = sorted(states, key=lambda state: (state != "finished", state))
        return ", ".join(f"{states[state]} {state}" for state in order)


def make_rows(runs: Sequence[ReportedRun]) -> list[TableRow]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups: dict[tuple[str, str, str], list[ReportedRun]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.protocol, run.label), []).append(run)
    return [row for key in sorted(groups) for row in _rows_of(groups[key])]


def _rows_of(runs: list[ReportedRun]) -> list[TableRow]:
    keys = varying(run.settings for run in runs)
    variants: dict[Setting, list[ReportedRun]] = {}
    for run in runs:
        setting = tuple((printable(key), printable(run.settings.get(key, "none"))) for key in keys)
        variants.setdefault(setting, []).append(run)
    told = _told_by_change(list(variants))
    order = sorted(variants, key=lambda one: [(key, *in_order(value)) for key, value in told[one]])
    return [_row(told[setting], variants[setting]) for setting in order]


def _told_by_change(variants: Sequence[Setting]) -> dict[Setting, Setting]:
    """Shorter settings where all variants but a base differ from it in one thing: that thing.

    Two settings and more must be varied: along a single one no value is a base.
    """
    for base in variants:
        changes = {one: _changes(one, base) for one in variants if one is not base}
        if all(len(change) == 1 for change in changes.values()) and len({one[0][0] for one in changes.values()}) > 1:
            return {base: BASE, **changes}
    return {one: one for one in variants}


def _changes(one: Setting, base: Setting) -> Setting:
    """What differs; of two settings that switch each other off the one that is given."""
    found = tuple(part for part, other in zip(one, base, strict=True) if part != other)
    return tuple(
        (key, value)
        for key, value in found
        if value != "null" or len(with_alternatives([key]).intersection(name for name, _ in found)) == 1
    )


def _row(setting: Setting, runs: list[ReportedRun]) -> TableRow:
    first = next((run for run in runs if run.result), runs[0])
    return TableRow(
        dataset=first.dataset,
        label=first.label,
        mixer=first.mixer,
        protocol=first.protocol,
        setting=setting,
        metric=first.result.metric if first.result else "accuracy",
        mode=first.result.mode if first.result else "max",
        runs=tuple(runs),
        counted=_one_per_seed(runs),
    )


def _one_per_seed(runs: list[ReportedRun]) -> tuple[ReportedRun, ...]:
    """Finished runs by seed; of several with one seed the newest, because folders are named by their time."""
    newest = {run.seed: run for run in sorted(runs, key=lambda run: run.folder.name) if run.counts}
    return tuple(newest[seed] for seed in sorted(newest))


def _state(run: ReportedRun, counted: bool) -> tuple[str, str]:
    """The state and its reason."""
    if run.status == "finished" and not counted:
        again = ("finished again", "a newer run of the seed counts")
        return again if run.counts else ("finished without a test score", "")
    reason = run.result.reason if run.result else None
    return run.status, printable(reason) if reason else ""


def varying(group: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Keys whose values differ within a group of settings, sorted."""
    members = list(group)
    keys = sorted({key for member in members for key in member})
    return tuple(key for key in keys if len({member.get(key) for member in members}) > 1)


def short_setting(setting: Setting) -> str:
    """`order=4, lr=0.001`: the last word of each key."""
    return ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in setting)


def with_alternatives(keys: Iterable[str]) -> set[str]:
    """Keys, and those that are switched off where one of them is given: `train.epochs` with `train.steps`."""
    pairs = [{".".join(map(str, path)) for path in pair} for pair in ALTERNATIVES]
    given = set(keys)
    return given.union(*(pair for pair in pairs if pair & given))


def in_order(text: str) -> tuple[float, str]:
    """Sort key of values: numbers in their order, words after them."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text
