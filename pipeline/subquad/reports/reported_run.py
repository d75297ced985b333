"""One run as the report sees it, from its folder: finished, failed, stopped or without a result
yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from subquad.experiment.schema import decides_numbers
from subquad.metric import Metric, metric_of
from subquad.record.files import read_bytes
from subquad.record.models import DATASET
from subquad.record.names import EXPERIMENT, SOURCES
from subquad.reports.text import Values, printable, setting_text
from subquad.reports.tuning import Tuning
from subquad.terminal import DASH, duration

_PROTOCOLS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened once",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened once",
    "paper": "best test accuracy over epochs, chosen on the test split",
}


_Text = Annotated[str, AfterValidator(printable)]
_Prose = Annotated[str, AfterValidator(lambda text: printable(" ".join(text.split())))]


def _printable(metrics: dict[str, Metric]) -> dict[str, Metric]:
    """Declarations whose texts may be shown."""
    return {
        name: replace(metric, label=printable(metric.label), unit=printable(metric.unit))
        for name, metric in metrics.items()
    }


class FilePart(BaseModel):
    """A part of a file that is read, as it has it."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, data: Any) -> Self:
        """From plain data.

        Raises:
            ValueError: in one line, the first key that is wrong, and why.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            message = first["msg"]
            if where:
                raise ValueError(f"{where}: {message.lower()}") from None
            raise ValueError(message.removeprefix("Value error, ")) from None


class _Evaluation(FilePart):
    """Metrics at one step; a metric that could not be computed is None."""

    epoch: float = 0.0
    split: str = ""
    metrics: dict[str, float | None] = {}


class _Test(FilePart):
    """The final evaluation on the test split."""

    metrics: dict[str, float | None]
    samples: int | None = None
    checkpoint: str = ""


class _ReferenceScores(FilePart):
    """By metric and name: what guesses that need no trained model score on the test split."""

    samples: int = Field(ge=1)
    scores: dict[str, dict[str, FiniteFloat]]


class ReportedExample(FilePart):
    """A model's answer in words, and what the data set gives."""

    target: _Prose
    answer: _Prose


class _Git(FilePart):
    commit: str | None = None
    dirty: bool = False

    @property
    def words(self) -> str:
        commit = self.commit or DASH
        if self.dirty:
            return f"{commit} with uncommitted changes"
        return commit


class Machine(FilePart):
    """Where a run's numbers come from: what environment.json says of it."""

    python: str | None = None
    platform: str | None = None
    gpus: tuple[str, ...] = ()
    packages: dict[str, str] = {}
    plugins: tuple[Values, ...] = ()
    git: _Git | None = None


class ReadInput(FilePart):
    """What a part of the experiment reads: where by dotted key, and digests of it."""

    settings: dict[str, str] = {}
    content: dict[str, str | None] = {}

    @property
    def mark(self) -> str:
        """A short digest of all of it."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:12]


class _Named(FilePart):
    name: str


class _Seeded(FilePart):
    seed: int = 0


class Beginning(FilePart):
    """What experiment.yaml must say of a run, and what identity.json adds: the names that tables
    give it.
    """

    mixer: _Named
    dataset: _Named
    protocol: str = "honest"
    train: _Seeded = _Seeded()


class ReportedRun(FilePart):
    """One run: where it lies, and what its result.json says, whose keys
    docs/reference/run-directory.md has.

    Attributes:
        folder: its directory.
        name: its directory relative to what was asked for.
        leaves: experiment.yaml by dotted key.
        environment: environment.json.
        inputs: inputs.json.
        places: keys of settings that only say where something lies, of all runs that are reported.
        data_mark: tells its data from others of the same name and settings; "" without such.
        faults: why its result cannot be that of the files beside it.
        axes: its coordinates in its study; a choice of several settings is a mapping.
        mixer: the plugin's name.
        dataset: the data set's problem or plugin.
        metric: what selects its checkpoints.
        tested: what tables compare, the first, and show besides; none: `metric`.
        metrics: how each is called and printed, as its task says.
        openings: how often the test split was opened for it.
        tuning: what was spent on its settings; None where it is not of a search.
        digest: the experiment's hash.
        coupled: the samples of a batch change each other.
    """

    folder: Path
    name: str
    leaves: Values
    environment: Machine
    inputs: dict[str, ReadInput] = {}
    places: frozenset[str] = frozenset()
    data_mark: str = ""
    faults: tuple[_Text, ...] = ()
    tuning: Tuning | None = None
    status: Literal["finished", "pruned", "failed", "unfinished", "damaged"]
    reason: _Text | None = None
    axes: Values = {}
    mixer: _Text
    dataset: _Text
    protocol: _Text
    protocol_label: _Text = ""
    seed: int
    coupled: bool = False
    metric: str = "accuracy"
    tested: tuple[str, ...] = ()
    metrics: Annotated[dict[str, Metric], AfterValidator(_printable)] = {}
    parameters: int | None = None
    flops_per_step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    seconds_per_step: float | None = None
    tokens_per_second: float | None = None
    peak_memory_bytes: int | None = None
    best: _Evaluation | None = None
    last: _Evaluation | None = None
    test: _Test | None = None
    reference_scores: _ReferenceScores | None = None
    openings: int = 1
    examples: tuple[ReportedExample, ...] = ()
    attempts: int | None = None
    skipped_steps: int | None = None
    workers: int | None = None
    notes: tuple[_Text, ...] = ()
    digest: str | None = Field(None, alias="experiment")
    published_keys: dict[str, str] = {}

    @property
    def has_result(self) -> bool:
        return self.status not in ("unfinished", "damaged")

    @model_validator(mode="after")
    def _fractions(self) -> Self:
        if self.reference_scores is None:
            return self
        for name, guesses in self.reference_scores.scores.items():
            if not self.shown(name).is_fraction:
                continue
            for value in guesses.values():
                if not 0 <= value <= 1:
                    raise ValueError(f"reference_scores: {name} must be a number from 0 to 1")
        return self

    @property
    def on_gpus(self) -> bool:
        return bool(self.leaves.get("resources.gpus_per_worker"))

    @property
    def compared(self) -> str:
        """The metric that tables compare."""
        if self.tested:
            return self.tested[0]
        return self.metric

    def shown(self, name: str) -> Metric:
        """How a metric is called and printed."""
        return metric_of(self.metrics, name)

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
        return self.protocol_label or _PROTOCOLS.get(self.protocol, self.protocol)

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
        git = machine.git or _Git()
        facts = {
            "not verified": "; ".join(self.faults),
            "experiment.yaml sha256": hashlib.sha256(experiment).hexdigest(),
            "experiment hash": self.digest,
            "reason": self.reason,
            "steps": steps,
            "attempts": self.attempts,
            "skipped steps": self.skipped_steps,
            "workers": self.workers,
            "test split opened": openings,
            "tested": tested,
            "git commit": git.words,
            "python": machine.python,
            "platform": machine.platform,
            "GPUs": ", ".join(machine.gpus),
            "packages": ", ".join(packages),
            "plugins": "; ".join(map(_plugin, machine.plugins)),
        }
        return {name: printable(str(value)) for name, value in facts.items() if value}


def _score_on(split: str, evaluation: _Evaluation | None, metric: str) -> float | None:
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
