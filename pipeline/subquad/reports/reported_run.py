"""One run as the report sees it, from its folder: finished, failed, stopped or without a result
yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import isclose, nan
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from subquad.errors import escaped
from subquad.experiment.schema import decides_numbers
from subquad.experiment.settings import ALTERNATIVES
from subquad.output.terminal import quantity
from subquad.plugin.metric import Metric
from subquad.record.files import flatten, read_bytes
from subquad.record.models import DATASET, Environment, Input, KeptExample, Measured, Result
from subquad.record.names import EXPERIMENT, SOURCES
from subquad.reports.text import Setting

_ORIGIN = (
    *("experiment", "reason", "steps", "seconds", "attempts", "skipped_steps", "workers"),
    "openings",
)
"""What result.json has of where its numbers come from."""
_LONGEST = 10_000
"""Characters of a name or line of somebody else's."""


def printable(text: str) -> str:
    """`text` on one line, control, format and surrogate characters (ANSI, bidi marks) as \\x1b.

    It is cut where no table or chart could show it.
    """
    return escaped(text, limit=_LONGEST)


_ALIKE = 0.1
"""Largest relative difference in FLOPs of equal budgets: trials that `trial.match=flops` made alike
differ by less.
"""


@dataclass(frozen=True)
class Tuning:
    """The tuning of one candidate; None is what is not known.

    Attributes:
        trials: finished ones.
        dimensions: how many settings were searched.
        flops: counted, of all its trials.
    """

    trials: int | None = None
    dimensions: int | None = None
    flops: float | None = None

    @property
    def words(self) -> str:
        """`12 trials, 5 dims, 1.2e+09 FLOPs`."""
        if self.trials is None or self.dimensions is None:
            return "unknown"
        trials = quantity(self.trials, "trial")
        return f"{trials}, {quantity(self.dimensions, 'dim')}, {self.flops_text}"

    @property
    def flops_text(self) -> str:
        """`1.2e+09 FLOPs`."""
        return "FLOPs unknown" if self.flops is None else f"{self.flops:.3g} FLOPs"


def unequal(first: Tuning | None, second: Tuning | None) -> str:
    """How the budgets of two scores differ, in words; "" where they do not, or neither is of a
    search.
    """
    if first is second is None:
        return ""
    if first is None or second is None:
        mine, other = (tuning.words if tuning else "no search" for tuning in (first, second))
        return f"unequal tuning: {mine} / {other}"
    parts = []
    if first.trials is None or first.trials != second.trials:
        trials = ["unknown" if count is None else count for count in (first.trials, second.trials)]
        parts.append("{} / {} trials".format(*trials))
    flops = [nan if spent is None else spent for spent in (first.flops, second.flops)]
    if not isclose(*flops, rel_tol=_ALIKE):
        parts.append(f"{first.flops_text} / {second.flops_text}")
    return f"unequal tuning: {', '.join(parts)}" if parts else ""


class ReportedRun(Result):
    """One run: where it lies, and what its result.json says.

    Attributes:
        folder: its directory.
        name: its directory relative to what was asked for.
        leaves: experiment.yaml by dotted key.
        environment: environment.json.
        inputs: inputs.json.
        places: keys of settings that only say where something lies, of all runs that are reported.
        data_mark: tells its data from others of the same name and settings; "" without such.
        faults: why its result cannot be that of the files beside it.
        tuning: what was spent on its settings; None where it is not of a search.
    """

    folder: Path
    leaves: dict[str, Any]
    environment: Environment
    inputs: dict[str, Input] = Field({})
    places: frozenset[str] = frozenset()
    data_mark: str = ""
    faults: tuple[str, ...] = ()
    tuning: Tuning | None = None
    status: Literal["finished", "pruned", "failed", "unfinished", "damaged"]  # pyright: ignore[reportIncompatibleVariableOverride]

    @field_validator("*")
    @classmethod
    def _shown(cls, value: Any) -> Any:
        """Texts of others, as tables may have them."""
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, KeptExample):
            return KeptExample(**{name: printable(" ".join(text.split())) for name, text in value})
        if isinstance(value, Metric):
            return replace(value, label=printable(value.label), unit=printable(value.unit))
        if isinstance(value, tuple):
            return tuple(map(cls._shown, value))
        return value

    @field_validator("metrics")
    @classmethod
    def _shown_metrics(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        return {name: cls._shown(metric) for name, metric in metrics.items()}

    @cached_property
    def content(self) -> str:
        """Tells its data from others; "" where that is not known."""
        return self.inputs[DATASET].mark if DATASET in self.inputs else ""

    @property
    def label(self) -> str:
        """The mixer's name in tables; a study may name several variants of one mixer."""
        return self._varied("mixer", self.mixer)

    @property
    def data_label(self) -> str:
        """The data set's name in tables; a study may name several variants of one."""
        label = self._varied("dataset", self.dataset)
        return f"{label} ({self.data_mark})" if self.data_mark else label

    def _varied(self, axis: str, plugin: str) -> str:
        value = self.axes.get(axis)
        return printable(value) if isinstance(value, str) else plugin

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What decides its score, as text by dotted key; what decides no numbers only if the study
        varies it.

        Of what it reads the content is a setting, not the place; data have `data_mark`. Where the
        mixer was given as a file its hash is one: another text is another mixer.
        """
        varied = set(self.axes)
        for value in self.axes.values():
            varied |= value.keys() if isinstance(value, Mapping) else set()
        found = {
            f"{part}.content": read.mark for part, read in self.inputs.items() if part != DATASET
        }
        for key, value in self.leaves.items():
            decides = key not in self.places and decides_numbers(key, self.coupled)
            if key != "train.seed" and (key in varied or decides):
                found[key] = setting_text(value)
        for source in sorted((self.folder / SOURCES).glob("*"))[:1]:
            found["mixer.source"] = source.name.partition("-")[0]
        return found

    def at(self, keys: Iterable[str]) -> Setting:
        """What some settings are in it."""
        return tuple((key, self.settings.get(key, "none")) for key in keys)

    def state(self, *, is_counted: bool) -> tuple[str, str | None]:
        """What became of it, and why. `is_counted`: whether its row's mean has it."""
        is_finished = self.status == "finished"
        if self.faults:
            reasons = filter(None, (self.reason, *self.faults))
            return "not verified" if is_finished else self.status, "; ".join(reasons)
        if is_counted or not is_finished:
            return self.status, self.reason
        if self.score(self.compared) is None:
            return "finished without a test score", None
        return "finished again", "a newer run of the seed counts"

    def score(self, metric: str) -> float | None:
        """A test metric of a finished run."""
        if self.test is None or self.status != "finished":
            return None
        return self.test.metrics.get(metric)

    def metrics_on(self, split: str, evaluation: Measured | None) -> Mapping[str, float | None]:
        """Those of an evaluation, if that was on this split."""
        return evaluation.metrics if evaluation and evaluation.split == split else {}

    def provenance(self) -> dict[str, str]:
        """Where its numbers come from: experiment, source revision, versions, plugins; by the names
        in the run's files.
        """
        machine = self.environment
        facts = {
            "not verified": "; ".join(self.faults),
            "experiment.yaml sha256": sha256(read_bytes(self.folder / EXPERIMENT)).hexdigest(),
            **{name: getattr(self, name) for name in _ORIGIN},
            "tested": self.test
            and f"{self.test.checkpoint} checkpoint, {self.test.samples} samples",
            **flatten(machine.model_dump()),
            "gpus": ", ".join(machine.gpus),
            "plugins": "; ".join(map(_plugin, machine.plugins)),
        }
        return {name: printable(str(value)) for name, value in facts.items() if value}


def _plugin(facts: dict[str, Any]) -> str:
    """`distribution acme-mixers, kind mixer, name running-mean, ...`."""
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value)


_JSON = json.JSONEncoder(sort_keys=True, default=str)


def setting_text(value: Any) -> str:
    """A setting as text; mixers of some layers or roles in words."""
    if isinstance(value, str):
        return value
    is_mixers = isinstance(value, list) and all(
        isinstance(entry, Mapping) and "name" in entry for entry in value
    )
    if not (value and is_mixers):
        return _JSON.encode(value)
    texts = []
    for entry in value:
        text = entry["name"]
        if layers := entry.get("layers"):
            text += f" in layers {', '.join(map(str, layers))}"
        if role := entry.get("role"):
            text += f" for {role}"
        if params := entry.get("params"):
            words = [f"{key} {setting_text(choice)}" for key, choice in params.items()]
            text += f" ({', '.join(words)})"
        texts.append(text)
    return "; ".join(texts)


def varying(group: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Keys whose values differ within a group of settings, sorted."""
    members = list(group)
    keys = sorted(set[str]().union(*members))
    return tuple(key for key in keys if len({member.get(key) for member in members}) > 1)


def with_alternative(key: str) -> set[str]:
    """A key, and the one that is switched off where it is given: `train.epochs` with
    `train.steps`.
    """
    for alternatives in ALTERNATIVES:
        pair = {".".join(map(str, path)) for path in alternatives}
        if key in pair:
            return pair
    return {key}
