"""Taking a checkpoint of a run, and going on from one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from subquad.engine import checkpoint, rng
from subquad.engine.checkpoint import Checkpoint
from subquad.engine.parts import Parts
from subquad.engine.progress import Progress
from subquad.engine.rng import seed_everything
from subquad.engine.tensors import load_model, load_optimizer, model_tensors, optimizer_tensors
from subquad.errors import CheckpointError
from subquad.experiment import differences
from subquad.experiment.schema import Experiment
from subquad.runs import BEST, LAST, write_json

CHECKPOINTS = "checkpoints"


def save(parts: Parts, progress: Progress) -> None:
    """Write a checkpoint; every rank must call it, the first one writes.

    It holds the experiment and its digest, so that it cannot be mistaken for another experiment's.
    """
    parts.group.share_buffers(parts.bare_model)
    model = model_tensors(parts.bare_model)
    optimizer = optimizer_tensors(parts.bare_model, parts.optimizer)
    generators = parts.group.gather((rng.tensors(), rng.numbers()))
    progress.loss_scale, progress.scaler_good_steps = parts.scaler.scale, parts.scaler.good_steps
    state = {
        "progress": dict(vars(progress)),
        "digest": parts.run.digest,
        "experiment": parts.run.experiment.model_dump(mode="json"),
        "world_size": parts.group.world_size,
        "rng": [numbers for _, numbers in generators],
    }
    states: dict[str, Tensor] = {}
    for rank, (own, _) in enumerate(generators):
        states |= {f"{rank}/{name}": one for name, one in own.items()}
    content = Checkpoint(model, optimizer, states, state)
    keep = parts.train.keep_checkpoints
    parts.group.together(lambda: _write(parts.run.folder, keep, progress, content) if parts.group.first else None)


def _write(run: Path, keep: int, progress: Progress, content: Checkpoint) -> None:
    checkpoint.write(run / CHECKPOINTS, progress.step, content)
    tidy(run, keep, progress)


def tidy(run: Path, keep: int, progress: Progress) -> None:
    """Bring best.json, last.json and the kept checkpoints in line with where the run stands."""
    for name, found in ((BEST, progress.best), (LAST, progress.last)):
        if found:
            write_json(run / name, found)
        else:
            (run / name).unlink(missing_ok=True)
    checkpoint.prune(run / CHECKPOINTS, progress.step, keep, [progress.best["step"]] if progress.best else [])


def restore(parts: Parts, found: Checkpoint) -> Progress:
    """Put model, optimiser, scaler and generators where a checkpoint left them.

    On another number of ranks the generators are seeded anew from the step: the sample order stays, dropout differs.

    Raises:
        CheckpointError: it belongs to another experiment.
    """
    if found.state.get("digest") != parts.run.digest:
        changed = ", ".join(differences(Experiment.model_validate(found.state["experiment"]), parts.run.experiment))
        raise CheckpointError(
            f"the checkpoint belongs to another experiment; they differ in: {changed or 'the source file of the mixer'}"
        )
    load_model(parts.bare_model, found.model)
    load_optimizer(parts.bare_model, parts.optimizer, found.optimizer)
    progress = _progress(found.state["progress"])
    parts.scaler.scale, parts.scaler.good_steps = progress.loss_scale, progress.scaler_good_steps
    if found.state["world_size"] == parts.group.world_size:
        prefix = f"{parts.group.rank}/"
        own = {name[len(prefix) :]: one for name, one in found.rng.items() if name.startswith(prefix)}
        rng.restore_rng(own, found.state["rng"][parts.group.rank])
    else:
        seed_everything(parts.train.seed, 2, parts.group.rank, progress.step)
    return progress


def _progress(values: dict[str, Any]) -> Progress:
    known = {one.name for one in fields(Progress)}
    progress = Progress(**{name: value for name, value in values.items() if name in known})
    for found in (progress.best, progress.last):
        if found:
            found["metrics"] = {name: float(value) for name, value in found["metrics"].items()}
    return progress
