"""The JSON files of a run's, a study's and a search's folder, a model for each kind.

Keys that are not named may have any value. What is not in a file has the model's default.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    Strict,
    ValidationError,
    model_validator,
)
from typing_extensions import TypedDict

from subquad.errors import escaped
from subquad.plugin.metric import Metric, metric_of
from subquad.record.names import (
    ENVIRONMENT,
    IDENTITY,
    INPUTS,
    MANIFEST,
    OWNER,
    RESULT,
    SUMMARY,
    TRIAL,
)

Count = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
_Operations = Annotated[int, Strict(), Field(ge=0)]
Flag = Annotated[bool, Strict()]


def _number(value: Any) -> Any:
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


Number = Annotated[float, Strict(), BeforeValidator(_number)]
"""One that is not finite stands in a file as a text, see `files.json_value`."""
_Plain = dict[str, Any]


class Part(BaseModel):
    """A part of a file, as the file has it."""

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
            first = error.errors(include_url=False, include_input=False)[0]
            message = first["msg"].removeprefix("Value error, ")
            where = escaped(".".join(map(str, first["loc"])), 200)
            raise ValueError(f"{where}: {message.lower()}" if where else message) from None


class File(Part):
    """A whole file of a folder, and its name there."""

    FILE: ClassVar[str]


class _Scored(Part):
    """Metrics at one step; a metric that could not be computed is None."""

    step: Count = 0
    metrics: dict[str, Number | None] = {}

    def score(self, name: str) -> float:
        """A metric, NaN where it is not there."""
        value = self.metrics.get(name)
        return math.nan if value is None else value


class Measured(_Scored):
    """An evaluation while training."""

    epoch: Number = 0.0
    split: str = ""


class Test(_Scored):
    """The final evaluation on the test split."""

    samples: Count | None = None
    checkpoint: str = ""


class ReferenceScores(Part):
    """By metric and name: what guesses that need no trained model score on the test split."""

    samples: int = Field(ge=1)
    scores: dict[str, dict[str, FiniteFloat]]


class KeptExample(Part):
    """A model's answer in words, and what the data set gives."""

    target: str
    answer: str


class Named(File):
    """What a run is called, from its beginning on.

    Attributes:
        name: the experiment's.
        axes: its coordinates in its study; a choice of several settings is a mapping.
        mixer: the plugin's name.
        dataset: the data set's problem or plugin.
        coupled: the samples of a batch change each other.
        metric: what selects its checkpoints.
        tested: what tables compare, the first, and show besides; none: `metric`.
        metrics: how each is called and printed, as its task says.
        workers: how many, or `1..4`.
    """

    format: Any = None
    name: str = ""
    axes: _Plain = {}
    mixer: str
    dataset: str
    task: str = ""
    backbone: str = ""
    protocol: str
    protocol_label: str = ""
    seed: Count
    coupled: Flag = False
    metric: str = "accuracy"
    tested: tuple[str, ...] = ()
    metrics: dict[str, Metric] = {}
    workers: Count | str | None = None

    @property
    def compared(self) -> str:
        """The metric that tables compare."""
        return self.tested[0] if self.tested else self.metric

    def shown(self, name: str) -> Metric:
        """How a metric is called and printed."""
        return metric_of(self.metrics, name)


class _Resources(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]
    storage: str | None


class _Experiment(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]
    resources: _Resources


class Identity(Named):
    """What a run is, written when it begins: its names, its experiment and the digest of it."""

    FILE = IDENTITY
    digest: str = ""
    experiment: _Experiment = {}

    @property
    def storage(self) -> str | None:
        """Where its checkpoints lie, an address; None: in its folder."""
        return self.experiment.get("resources", {}).get("storage")


class Result(Named):
    """How a run ended.

    Attributes:
        experiment: its digest.
        launch: the start of the driver that it ended in.
        openings: how often the test split was opened for it.
        files: size and sha256 of what it stands on; None: nobody wrote them down.
    """

    FILE = RESULT
    experiment: str | None = None
    launch: str = ""
    status: Literal["finished", "pruned", "failed"]
    reason: str | None = None
    parameters: Count | None = None
    flops_per_step: _Operations | None = None
    bytes_per_step: _Operations | None = None
    steps: Count | None = None
    epochs: Number | None = None
    seconds: Number | None = None
    seconds_per_step: Number | None = None
    tokens_per_second: Number | None = None
    peak_memory_bytes: Count | None = None
    best: Measured | None = None
    last: Measured | None = None
    test: Test | None = None
    reference_scores: ReferenceScores | None = None
    openings: Count = 1
    examples: tuple[KeptExample, ...] = ()
    attempts: Count | None = None
    skipped_steps: Count | None = None
    notes: tuple[str, ...] = ()
    sizes: _Plain = {}
    uncounted: tuple[str, ...] = ()
    init: _Plain | None = None
    published_keys: dict[str, str] = {}
    files: _Plain | None = None

    @model_validator(mode="after")
    def _fractions(self) -> Self:
        scores = self.reference_scores.scores if self.reference_scores else {}
        for name, guesses in scores.items():
            for value in guesses.values():
                if self.shown(name).is_fraction and not 0 <= value <= 1:
                    raise ValueError(f"reference_scores: {name} must be a number from 0 to 1")
        return self


DATASET = "dataset"
"""The part of inputs.json that has the data's content."""


class Input(Part):
    """What a run reads, by the part of its experiment that asks.

    Attributes:
        settings: where it lies, by dotted key.
        content: the SHA-256 of each part of it, None while that is not known.
        start: of `init`: what became of the weights.
    """

    settings: dict[str, str] = {}
    content: dict[str, str | None] = {}
    start: _Plain | None = None

    @property
    def mark(self) -> str:
        """A short digest of all of it."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:12]


class Inputs(File):
    """What a run reads beside its experiment, by the part of it that asks: "dataset", "init",
    "mixer", "mixers[0]".
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Input]  # pyright: ignore[reportIncompatibleVariableOverride]
    FILE = INPUTS

    @property
    def parts(self) -> dict[str, Input]:
        return self.__pydantic_extra__


class Git(Part):
    """The commit of the sources."""

    commit: str | None = None
    dirty: Flag | None = None


class Environment(File):
    """Where a run's numbers come from."""

    FILE = ENVIRONMENT
    python: str | None = None
    platform: str | None = None
    cpus: Count | None = None
    gpus: tuple[str, ...] = ()
    packages: dict[str, str] = {}
    plugins: tuple[_Plain, ...] = ()
    git: Git | None = None


class CheckpointManifest(File):
    """What a checkpoint holds."""

    FILE = MANIFEST
    step: Count
    best: Count | None = None
    experiment: Any
    files: _Plain

    @property
    def shards(self) -> int:
        """Ranks that wrote it, each its part of model and optimiser: all files but two are such."""
        return max(1, len(self.files) // 2 - 1)


class TrialFile(File):
    """A trial of a search."""

    FILE = TRIAL
    state: str = ""
    reason: str = ""
    settings: _Plain = {}
    point: _Plain = {}


class WinnerSummary(Part):
    """The best trial of a candidate."""

    number: Count
    step: Count
    value: Number
    point: _Plain


class CandidateSummary(Part):
    """What a search spent on one candidate, and found."""

    label: str
    metric: str
    metrics: dict[str, Metric]
    dimensions: Count
    trials: dict[str, Count]
    steps: Count
    flops: Number | None
    seconds: Number
    best: WinnerSummary | None
    final: tuple[str, ...]
    over: str
    reasons: tuple[str, ...] = ()


class SearchSummary(File):
    """What a search found."""

    FILE = SUMMARY
    candidates: tuple[CandidateSummary, ...]
    files: dict[str, _Plain] = {}


class Owner(File):
    """The process that works on a folder."""

    FILE = OWNER
    pid: Count | None = None
    host: str = "?"


FILES = {
    kind.FILE: kind
    for kind in (
        Identity,
        Inputs,
        Environment,
        Result,
        CheckpointManifest,
        TrialFile,
        SearchSummary,
        Owner,
    )
}
"""The model of each file."""
