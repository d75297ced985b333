"""The end of a run: the chosen checkpoint meets the test split, once; guesses without a model are scored beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from subquad.data import Dataset, Split
from subquad.engine import checkpoint
from subquad.engine.evaluate import evaluate
from subquad.engine.parts import Parts
from subquad.engine.progress import Progress
from subquad.engine.seal import Seal
from subquad.engine.state import CHECKPOINTS
from subquad.engine.tensors import load_model
from subquad.errors import CheckpointError
from subquad.runs import PREDICTIONS

_LONGEST = 200


@dataclass(frozen=True)
class ReferenceScores:
    """Accuracies of guesses that need no trained model.

    Attributes:
        samples: test samples they were scored on.
        accuracy: in [0, 1], by the guess's name.
        notes: what went wrong.
    """

    samples: int
    accuracy: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any] | None:
        """None where there are none."""
        return {"samples": self.samples, "accuracy": dict(self.accuracy)} if self.accuracy else None


def reference_scores(dataset: Dataset, split: Split) -> ReferenceScores:
    """Ask a data set for them on an open split; what is wrong with them becomes a note, so the run keeps its result."""
    try:
        found = dict(dataset.reference_scores(split))
        wrong = [name for name, value in found.items() if not _is_accuracy(name, value)]
        notes = tuple(
            _one_line(f"reference score {name!r} left out: {found.pop(name)!r} is no accuracy") for name in wrong
        )
        return ReferenceScores(len(split), {name: float(value) for name, value in found.items()}, notes)
    except Exception as error:  # a plugin's: the run has its result, which a row beside it must not cost
        return ReferenceScores(len(split), notes=(_one_line(f"no reference scores: {type(error).__name__}: {error}"),))


def _is_accuracy(name: Any, value: Any) -> bool:
    if not isinstance(name, str) or not name.strip():
        return False
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and bool(0 <= value <= 1)


def _one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 1]}…"


@dataclass(frozen=True)
class Final:
    """The final evaluation.

    Attributes:
        metrics: on the test split.
        samples: test samples.
        checkpoint: "best" or "last".
        step: the checkpoint's step.
        references: what guesses without a model score on the same samples.
        notes: what a reader of the numbers has to know.
    """

    metrics: Mapping[str, float]
    samples: int
    checkpoint: str
    step: int
    references: ReferenceScores
    notes: tuple[str, ...]


def conclude(parts: Parts, seal: Seal, progress: Progress) -> Final:
    """Load the checkpoint the protocol chooses, open the test split, evaluate, keep the predictions."""
    run, protocol = parts.run.folder, parts.run.experiment.protocol
    chosen, step, notes = "last", progress.step, []
    if protocol != "fixed" and progress.best:
        chosen, step = "best", progress.best["step"]
        try:
            load_model(parts.bare_model, checkpoint.read_checkpoint(run / CHECKPOINTS, step).model)
        except CheckpointError as error:
            chosen, step = "last", progress.step
            notes.append(f"the best checkpoint could not be read, the last weights were tested instead: {error}")
    split = parts.group.together(lambda: seal.open(f"final evaluation of the {chosen} checkpoint, step {step}"))
    found = evaluate(parts, split, per_sample=True)
    if parts.group.first and found.arrays:
        save_file({name: np.ascontiguousarray(rows) for name, rows in found.arrays.items()}, run / PREDICTIONS)
    references = reference_scores(seal.dataset, split) if parts.group.first else ReferenceScores(len(split))
    notes = (*notes, *getattr(split, "notes", ()), *references.notes)
    return Final(found.metrics, found.samples, chosen, step, references, notes)
