"""The end of a run: the chosen checkpoint meets the test split, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from safetensors.numpy import save_file

from subquad.engine import checkpoint
from subquad.engine.evaluate import evaluate
from subquad.engine.oracles import Oracles, ask
from subquad.engine.parts import Parts
from subquad.engine.progress import Progress
from subquad.engine.seal import Seal
from subquad.engine.state import CHECKPOINTS
from subquad.engine.tensors import load_model
from subquad.errors import CheckpointError
from subquad.runs import PREDICTIONS


@dataclass(frozen=True)
class Final:
    """The final evaluation.

    Attributes:
        metrics: on the test split.
        samples: test samples.
        checkpoint: "best" or "last".
        step: the checkpoint's step.
        oracles: what guesses without a model score on the same samples.
        notes: what a reader of the numbers has to know.
    """

    metrics: Mapping[str, float]
    samples: int
    checkpoint: str
    step: int
    oracles: Oracles
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
    oracles = ask(seal.dataset, split) if parts.group.first else Oracles(len(split))
    notes = (*notes, *getattr(split, "notes", ()), *oracles.notes)
    return Final(found.metrics, found.samples, chosen, step, oracles, notes)
