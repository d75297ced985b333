"""What the report reads of a run's result.json, checked. Keys and meaning: docs/reference/run-directory.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subquad.errors import RunError
from subquad.runs import RESULT

FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Evaluation(_Part):
    """Metrics at one step; a metric that could not be computed is None."""

    step: int = 0
    epoch: float = 0.0
    split: str = ""
    metrics: dict[str, float | None] = Field(default_factory=dict)


class TestScore(_Part):
    """The final evaluation on the test split."""

    __test__ = False  # not a pytest class

    metrics: dict[str, float | None]
    samples: int | None = None
    checkpoint: str = ""
    step: int | None = None


class Guesses(_Part):
    """Accuracies of guesses that need no trained model, on the test split."""

    samples: int = Field(ge=1)
    accuracy: dict[str, Annotated[float, Field(ge=0, le=1)]]


class Result(_Part):
    """A run's result.json."""

    status: Literal["finished", "pruned", "failed", "stopped"]
    reason: str | None = None
    axes: dict[str, Any] = Field(default_factory=dict)
    mixer: str
    dataset: str
    protocol: str
    protocol_label: str = ""
    seed: int
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    parameters: int | None = None
    flops_per_step: int | None = None
    steps: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    best: Evaluation | None = None
    last: Evaluation | None = None
    test: TestScore | None = None
    oracles: Guesses | None = None
    attempts: int | None = None
    skipped_steps: int | None = None
    workers: int | None = None
    notes: tuple[str, ...] = ()
    experiment: str | None = None
    published_keys: dict[str, str] = Field(default_factory=dict)


def load_result(run: Path) -> Result | None:
    """A run's result, None while there is none.

    Raises:
        RunError: the file is of another format, or not what this version writes.
    """
    path = run / RESULT
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: not readable as JSON ({type(error).__name__})") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise RunError(f"{path}: result format {found!r}, this subquad reads format {FORMAT}")
    try:
        return Result.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{path}: {where}: {first['msg'].lower()}") from error
