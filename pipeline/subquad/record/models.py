"""What the JSON files of a run's folder hold, as far as anything asks: keys that are not named may
have any value.

A number that is not finite stands there as a text, see `runs.json_value`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Number = float | Literal["NaN", "Infinity", "-Infinity"]
_Metrics = dict[str, _Number | None]


class _Evaluation(TypedDict, total=False):
    """Metrics at one step: best.json, last.json, and parts of result.json."""

    step: _Count | None
    epoch: _Number
    split: str
    metrics: _Metrics


class _Test(TypedDict, total=False):
    """The final evaluation."""

    step: _Count
    samples: _Count | None
    checkpoint: str
    metrics: _Metrics


class _Named(TypedDict, total=False):
    """What a run is called: identity.json, and a part of result.json."""

    format: Any
    name: str
    label: str
    axes: dict[str, Any]
    mixer: str
    dataset: str
    task: str
    backbone: str
    protocol: str
    protocol_label: str
    seed: _Count
    coupled: bool
    metric: str
    tested: list[str]
    metrics: dict[str, dict[str, Any]]


class _Resources(TypedDict, total=False):
    storage: str | None


class _Experiment(TypedDict, total=False):
    resources: _Resources


class IdentityFile(_Named, total=False):
    """identity.json."""

    digest: str
    experiment: _Experiment


DATASET = "dataset"
"""The part of inputs.json that has the data's content."""


class Input(TypedDict):
    """An entry of inputs.json: what a run reads, by the part of it that asks.

    Keys: `settings` say where it lies, by dotted key; `content` is the SHA-256 of each part of it,
    None while that is not known; `start`, of `init`, is what became of the weights.
    """

    settings: dict[str, str]
    content: dict[str, str | None]
    start: NotRequired[dict[str, Any]]


class ResultFile(_Named, total=False):
    """result.json."""

    experiment: str
    status: str
    reason: str | None
    parameters: _Count | None
    flops_per_step: Annotated[int, Field(ge=0)] | None
    bytes_per_step: Annotated[int, Field(ge=0)] | None
    steps: _Count | None
    epochs: _Number | None
    seconds: _Number | None
    seconds_per_step: _Number | None
    tokens_per_second: _Number | None
    peak_memory_bytes: _Count | None
    best: _Evaluation | None
    last: _Evaluation | None
    test: _Test | None
    openings: _Count
    attempts: _Count | None
    skipped_steps: _Count | None
    notes: list[str]
    files: dict[str, Any]


class CheckpointFile(TypedDict):
    """manifest.json of a checkpoint."""

    step: _Count
    best: NotRequired[_Count | None]
    experiment: Any
    files: dict[str, Any]


class _Git(TypedDict, total=False):
    commit: str | None
    dirty: bool | None


class EnvironmentFile(TypedDict, total=False):
    """environment.json."""

    git: _Git | None
    plugins: list[dict[str, Any]]
    packages: dict[str, str]


class TrialFile(TypedDict, total=False):
    """trial.json."""

    state: str
    reason: str
    settings: dict[str, Any]
    point: dict[str, Any]


class _Winner(TypedDict):
    number: _Count
    step: _Count
    value: _Number
    point: dict[str, Any]


class _Candidate(TypedDict):
    label: str
    metric: str
    metrics: dict[str, dict[str, Any]]
    dimensions: _Count
    trials: dict[str, _Count]
    steps: _Count
    flops: _Number | None
    seconds: _Number
    best: _Winner | None
    final: list[str]
    over: str
    reasons: NotRequired[list[str]]


class SearchFile(TypedDict):
    """search.json."""

    candidates: list[_Candidate]
    files: NotRequired[dict[str, dict[str, Any]]]


class OwnerFile(TypedDict, total=False):
    """owner.json."""

    pid: int
    host: str
