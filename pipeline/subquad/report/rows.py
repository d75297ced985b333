"""Rows of the table: runs that differ in nothing but their seed. Other protocols and settings are rows of their own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from subquad.report import settings
from subquad.report.cells import PROTOCOL_LABELS, Cell
from subquad.report.settings import Setting
from subquad.report.text import Spread, clean


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        label: the mixer's name in tables.
        mixer: the plugin's name.
        setting: the keys that tell this row from others of the same data set, mixer and protocol.
        metric: what selects checkpoints, and is compared.
        mode: whether its "max" or its "min" is best.
        cells: all runs, whatever became of them.
        counted: the finished runs behind the means, one a seed.
        score: the metric on the test split.
        last_score: the same after the last epoch, where the protocol reports the best test score over epochs.
        seconds: training time.
        roles: in a study that varies settings, what this row changes of its base; () where it is the base. Rows of
            several such studies may have several.
    """

    dataset: str
    label: str
    mixer: str
    protocol: str
    setting: Setting
    metric: str
    mode: str
    cells: tuple[Cell, ...]
    counted: tuple[Cell, ...]
    score: Spread | None
    last_score: Spread | None
    macro_f1: Spread | None
    seconds: Spread | None
    roles: tuple[Setting, ...] = ()

    @property
    def name(self) -> str:
        """The mixer with what tells it from its variants."""
        parts = [settings.short(self.setting), "base" if self.is_base else ""]
        told = ", ".join(part for part in parts if part)
        return f"{self.label} ({told})" if told else self.label

    @property
    def is_base(self) -> bool:
        """Whether a study varies settings around it."""
        return () in self.roles

    @property
    def parameters(self) -> int | None:
        return next((cell.result.parameters for cell in self.counted if cell.result), None)

    @property
    def flops_per_step(self) -> int | None:
        return next((cell.result.flops_per_step for cell in self.counted if cell.result), None)

    @property
    def best_epochs(self) -> tuple[float, ...]:
        """Epoch of the chosen checkpoint, per seed."""
        return tuple(cell.result.best.epoch for cell in self.counted if cell.result and cell.result.best)

    @property
    def protocol_label(self) -> str:
        known = next((cell.result.protocol_label for cell in self.cells if cell.result), "")
        return clean(known) or PROTOCOL_LABELS.get(self.protocol, self.protocol)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(cell.seed for cell in self.counted)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the runs say a reader of their numbers must know, each once."""
        found = (clean(note) for cell in self.cells if cell.result for note in cell.result.notes)
        return tuple(dict.fromkeys(found))


def make_rows(cells: Sequence[Cell]) -> list[Row]:
    """Rows, ordered by data set, protocol, mixer and setting."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.protocol, cell.label), []).append(cell)
    return [row for key in sorted(groups) for row in _rows_of(groups[key])]


def _rows_of(cells: list[Cell]) -> list[Row]:
    keys = settings.varying(cell.settings for cell in cells)
    variants: dict[Setting, list[Cell]] = {}
    for cell in cells:
        setting = tuple((clean(key), clean(cell.settings.get(key, "none"))) for key in keys)
        variants.setdefault(setting, []).append(cell)
    told = _told_by_change(variants)
    return [_row(told[setting], variants[setting]) for setting in sorted(variants, key=lambda one: _natural(told[one]))]


def _told_by_change(variants: Mapping[Setting, Sequence[Cell]]) -> dict[Setting, Setting]:
    """Shorter settings where each variant changes one thing of a base: that, and nothing else that is varied."""
    roles = {setting: _roles(cells) for setting, cells in variants.items()}
    varied = settings.with_alternatives(key for each in roles.values() for role in each for key, _ in role)
    told = {
        setting: (*(part for part in setting if part[0] not in varied), *(part for role in each for part in role))
        for setting, each in roles.items()
    }
    clear = all(len(each) == 1 for each in roles.values()) and len(set(told.values())) == len(told)
    return told if clear else {setting: setting for setting in variants}


def _roles(cells: Iterable[Cell]) -> tuple[Setting, ...]:
    return tuple(sorted({cell.varied for cell in cells if cell.varied is not None}))


def _natural(setting: Setting) -> list[tuple[str, float, str]]:
    """Key by key; numbers in their order, words after them."""
    return [(key, _number(value), value) for key, value in setting]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def _row(setting: Setting, cells: list[Cell]) -> Row:
    first = next((cell for cell in cells if cell.result), cells[0])
    metric = first.result.metric if first.result else "accuracy"
    counted = _one_per_seed(cells)
    return Row(
        dataset=first.dataset,
        label=first.label,
        mixer=first.mixer,
        protocol=first.protocol,
        setting=setting,
        metric=metric,
        mode=first.result.mode if first.result else "max",
        cells=tuple(cells),
        counted=counted,
        score=_spread(cell.score(metric) for cell in counted),
        last_score=_spread(cell.last_score(metric) for cell in counted) if first.protocol == "paper" else None,
        macro_f1=_spread(cell.score("macro_f1") for cell in counted),
        seconds=_spread(cell.result.seconds for cell in counted if cell.result),
        roles=_roles(cells),
    )


def _one_per_seed(cells: list[Cell]) -> tuple[Cell, ...]:
    """Finished runs by seed; of several with one seed the newest, because folders are named by their time."""
    newest = {cell.seed: cell for cell in sorted(cells, key=lambda cell: cell.folder.name) if cell.counts}
    return tuple(newest[seed] for seed in sorted(newest))


def _spread(values: Iterable[float | None]) -> Spread | None:
    return Spread.of([value for value in values if value is not None and math.isfinite(value)])


def status_of(row: Row, *, reasons: bool = True) -> str:
    """What became of a row's runs: `2 finished, 1 failed (three non-finite steps in a row)`.

    Args:
        reasons: say why, in brackets.
    """
    counted = {cell.folder for cell in row.counted}
    found = (_state(cell, cell.folder in counted) for cell in row.cells)
    states = Counter(f"{state} ({reason})" if reason and reasons else state for state, reason in found)
    order = sorted(states, key=lambda state: (state != "finished", state))
    return ", ".join(f"{states[state]} {state}" for state in order)


def _state(cell: Cell, counted: bool) -> tuple[str, str]:
    """The state and its reason."""
    if cell.status == "finished" and not counted:
        again = ("finished again", "a newer run of the seed counts")
        return again if cell.counts else ("finished without a test score", "")
    reason = cell.result.reason if cell.result else None
    return cell.status, clean(reason) if reason else ""
