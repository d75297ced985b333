"""One run as the report sees it, from its folder: finished, failed, stopped or without a result
yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from subquad.experiment.schema import decides_numbers
from subquad.output.terminal import DASH, duration
from subquad.plugin.metric import Metric
from subquad.record.files import read_bytes
from subquad.record.models import DATASET, Environment, Git, Input, KeptExample, Measured, Result
from subquad.record.names import EXPERIMENT, SOURCES
from subquad.reports.text import Values, printable, setting_text
from subquad.reports.tuning import Tuning


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
    leaves: Values
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
            texts = {name: printable(" ".join(text.split())) for name, text in value}
            return KeptExample(**texts)
        if isinstance(value, Metric):
            return replace(value, label=printable(value.label), unit=printable(value.unit))
        if isinstance(value, tuple):
            return tuple(map(cls._shown, value))
        return value

    @field_validator("metrics")
    @classmethod
    def _shown_metrics(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        return {name: cls._shown(metric) for name, metric in metrics.items()}

    @property
    def has_result(self) -> bool:
        return self.status not in ("unfinished", "damaged")

    @property
    def on_gpus(self) -> bool:
        return bool(self.leaves.get("resources.gpus_per_worker"))

    @property
    def label(self) -> str:
        """The mixer's name in tables; a study may name several variants of one mixer."""
        return self._varied("mixer", self.mixer)

    @property
    def data_label(self) -> str:
        """The data set's name in tables; a study may name several variants of one."""
        label = self._varied("dataset", self.dataset)
        if self.data_mark:
            return f"{label} ({self.data_mark})"
        return label

    def _varied(self, axis: str, plugin: str) -> str:
        value = self.axes.get(axis)
        if isinstance(value, str):
            return printable(value)
        return plugin

    @property
    def protocol_meaning(self) -> str:
        return self.protocol_label or self.protocol

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What decides its score, as text by dotted key; what decides no numbers only if the study
        varies it.

        Of what it reads the content is a setting, not the place; data have `data_mark`. Where the
        mixer was given as a file its hash is one: another text is another mixer.
        """
        varied = set(self.axes)
        for value in self.axes.values():
            if isinstance(value, Mapping):
                varied |= value.keys()
        found = {
            f"{part}.content": read.mark for part, read in self.inputs.items() if part != DATASET
        }
        for key, value in self.leaves.items():
            if key == "train.seed":
                continue
            is_place = key in self.places
            if key in varied or (not is_place and decides_numbers(key, self.coupled)):
                found[key] = setting_text(value)
        source = min((self.folder / SOURCES).glob("*"), default=None)
        if source is not None:
            found["mixer.source"], _, _ = source.name.partition("-")
        return found

    def score(self, metric: str) -> float | None:
        """A test metric of a finished run."""
        if self.test is None or self.status != "finished":
            return None
        return self.test.metrics.get(metric)

    def last_score(self, metric: str) -> float | None:
        """The metric at the last evaluation of a finished run, if that was on the test split."""
        if self.status != "finished":
            return None
        return _score_on("test", self.last, metric)

    def validation_score(self, metric: str) -> float | None:
        """The metric of the chosen checkpoint, if it was chosen on a validation split."""
        return _score_on("validation", self.best, metric)

    def provenance(self) -> dict[str, str]:
        """Where its numbers come from: experiment, source revision, versions, plugin
        distributions; by name.
        """
        machine = self.environment
        experiment = read_bytes(self.folder / EXPERIMENT)
        steps = ""
        if self.steps is not None:
            steps = f"{self.steps} in {duration(self.seconds)}"
        openings = ""
        if self.openings > 1:
            openings = f"{self.openings} times"
        tested = ""
        if test := self.test:
            tested = f"{test.checkpoint} checkpoint, {test.samples} samples"
        versions = sorted(machine.packages.items())
        packages = [f"{name} {version}" for name, version in versions]
        git = machine.git or Git()
        commit = git.commit or DASH
        facts = {
            "not verified": "; ".join(self.faults),
            "experiment.yaml sha256": hashlib.sha256(experiment).hexdigest(),
            "experiment hash": self.experiment,
            "reason": self.reason,
            "steps": steps,
            "attempts": self.attempts,
            "skipped steps": self.skipped_steps,
            "workers": self.workers,
            "test split opened": openings,
            "tested": tested,
            "git commit": f"{commit} with uncommitted changes" if git.dirty else commit,
            "python": machine.python,
            "platform": machine.platform,
            "GPUs": ", ".join(machine.gpus),
            "packages": ", ".join(packages),
            "plugins": "; ".join(map(_plugin, machine.plugins)),
        }
        return {name: printable(str(value)) for name, value in facts.items() if value}


def _score_on(split: str, evaluation: Measured | None, metric: str) -> float | None:
    """A metric of an evaluation, if that was of this split."""
    if evaluation is None or evaluation.split != split:
        return None
    return evaluation.metrics.get(metric)


def _plugin(facts: Values) -> str:
    """`mixer running-mean from acme-mixers 1.2 (sha256 0f3c52d1a9e4)`."""
    distribution = facts.get("distribution") or "a file"
    version = facts.get("version") or ""
    origin = f"{distribution} {version}".strip()
    kind = facts.get("kind")
    name = facts.get("name")
    words = f"{kind} {name} from {origin}"
    marks = []
    if facts.get("editable"):
        marks.append("editable")
    if facts.get("sha256"):
        digest = str(facts["sha256"])
        marks.append(f"sha256 {digest[:12]}")
    if marks:
        listed = ", ".join(marks)
        words += f" ({listed})"
    return words
