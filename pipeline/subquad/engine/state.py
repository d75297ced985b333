"""Where a run stands, and its checkpoints: taking one, and going on from one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from subquad.engine import checkpoint
from subquad.engine.checkpoint import Checkpoint
from subquad.engine.group import Group
from subquad.engine.parts import Parts
from subquad.engine.stored import pieces_of
from subquad.engine.tensors import (
    copied,
    differing,
    first_rows,
    generator_states,
    kinds_of,
    load_generators,
    load_model,
    load_optimizer,
    missing_state,
    model_tensors,
    optimizer_tensors,
    seed_everything,
    trained_parameters,
)
from subquad.errors import CheckpointError, TrainingFailed, and_more
from subquad.experiment import Run
from subquad.record.files import write_json
from subquad.record.names import BEST, LAST
from subquad.record.storage import remove

_TRAINED = "/"
"""Starts the names of weights that go on training, where a checkpoint's model holds their
average.
"""


@dataclass
class Progress:
    """Position and counters of a run: all but tensors that a checkpoint holds. Plain JSON values,
    equal on every rank.

    Attributes:
        step: batches consumed; this is the position in the plan's data and in the schedule.
        skipped: non-finite steps skipped so far.
        skipped_in_a_row: of these, the ones since the last update.
        bad: samples met so far that could not be read; one counts each time.
        seconds: training time over all attempts.
        best: step, epoch, split and metrics of the best evaluation; empty before the first.
        last: the same of the newest evaluation.
        stale: evaluations since the best one.
        done: training is over; only the final evaluation is left.
        pruned: why a search ended its trial before the last step; "" where none did.
        loss_scale, scaler_good_steps: the fp16 scaler.
    """

    step: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    bad: int = 0
    seconds: float = 0.0
    best: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    stale: int = 0
    done: bool = False
    pruned: str = ""
    loss_scale: float = 1.0
    scaler_good_steps: int = 0

    def evaluated(self, found: dict[str, Any], metric: str, mode: str) -> bool:
        """Take note of an evaluation; True where it is the best so far. NaN never is, and of equals
        the lower loss is.

        Small validation splits give many equals: the first one would be a checkpoint that is hardly
        trained.
        """
        self.last = found
        self.stale += 1
        if _better(found["metrics"], self.best.get("metrics"), metric, mode):
            self.best = found
            self.stale = 0
        return self.best is found


def _better(new: dict[str, float], best: dict[str, float] | None, metric: str, mode: str) -> bool:
    score = new[metric]
    if not math.isfinite(score):
        return False
    if best is None:
        return True
    if score == best[metric] and "loss" in new and "loss" in best:
        return new["loss"] < best["loss"]
    if mode == "max":
        return score > best[metric]
    return score < best[metric]


def save(parts: Parts, progress: Progress, is_last: bool) -> None:
    """Write a checkpoint; every rank must call it. That of a sharded run is written while training
    goes on, once the one before is whole.

    Args:
        is_last: return once it is whole.

    Raises:
        TrainingFailed: a weight is not finite, or the optimiser lost state; nothing was written.
    """
    background = parts.background
    if background is None:
        _write(parts.group, parts, progress, _taken(parts, progress), parts.updated)
        return
    background.finish()
    content = _taken(parts, progress)
    background.start(_write, parts, replace(progress), content, set(parts.updated))
    if is_last:
        background.finish()


def first_progress(parts: Parts) -> Progress:
    """Where a run begins; every rank must call it. What cannot be kept is met before it is
    trained.
    """
    progress = Progress()
    content = _taken(parts, progress)
    pieces_of(content.model, content.first_rows)
    return progress


def _taken(parts: Parts, progress: Progress) -> Checkpoint:
    """What a checkpoint holds, by collective calls: also the experiment and its digest, so that it
    cannot be mistaken for another experiment's.
    """
    run = parts.run
    group = parts.group
    group.share_buffers(parts.bare_model)
    model = model_tensors(parts.bare_model)
    optimizer = optimizer_tensors(parts.optimizer)
    if parts.average:
        optimizer |= {f"{_TRAINED}{name}": tensor for name, tensor in model.items()}
    trained = copied(optimizer, whole=group.first)
    with parts.averaged():
        kept = copied(model, whole=group.first)
    generators = {}
    numbers = []
    for rank, (states, values) in enumerate(group.gather(generator_states())):
        numbers.append(values)
        for name, tensor in states.items():
            generators[f"{rank}/{name}"] = tensor
    progress.loss_scale = parts.scaler.scale
    progress.scaler_good_steps = parts.scaler.good_steps
    state = {
        "progress": dict(vars(progress)),
        "digest": run.digest,
        "experiment": run.experiment.model_dump(mode="json"),
        "world_size": group.world_size,
        "rng": numbers,
        "tensors": kinds_of(optimizer | generators),
    }
    return Checkpoint(kept, trained, generators, state, first_rows(model | optimizer))


def _write(
    group: Group,
    parts: Parts,
    progress: Progress,
    content: Checkpoint,
    updated: set[str],
) -> None:
    run = parts.run
    group.together(_check, parts, content, updated)
    group.of_first(run.files.mirror)  # before the checkpoint of its records
    checkpoint.write(run.files.checkpoints, progress.step, content, group)
    group.of_first(tidy, run, parts.train.keep_checkpoints, progress)


def _check(parts: Parts, content: Checkpoint, updated: set[str]) -> None:
    """Refuse a checkpoint from which nothing good could go on."""
    missing = []
    if parts.group.first:  # it has the scalars too
        own = [path for path in content.optimizer if not path.startswith(_TRAINED)]
        missing = missing_state(parts.optimizer, updated, own)
    step = content.state["progress"]["step"]
    kept = "no checkpoint was written, earlier ones are intact"
    if missing:
        more = and_more(len(missing) - 1)
        raise TrainingFailed(
            f"step {step}: the optimiser has lost its state: {missing[0]}{more}; {kept}"
        )
    names = [name for name, _ in trained_parameters(parts.optimizer)]
    broken = dict[str, None]()
    for prefix, tensors in (("", content.model), (_TRAINED, content.optimizer)):
        for name in names:
            weight = tensors.get(f"{prefix}{name}")
            if weight is not None and not weight.isfinite().all():
                broken[name] = None
    if broken:
        more = and_more(len(broken) - 1)
        raise TrainingFailed(
            f"step {step}: weights are not finite: {next(iter(broken))}{more}; {kept}: lower "
            "train.lr, or set train.clip_norm"
        )


def tidy(run: Run, keep: int, progress: Progress) -> None:
    """Bring best.json, last.json and the kept checkpoints in line with where the run stands."""
    for name, evaluation in ((BEST, progress.best), (LAST, progress.last)):
        if evaluation:
            write_json(run.folder / name, evaluation)
        else:
            remove(run.folder / name)
    needed = [progress.best["step"]] if progress.best else []
    checkpoint.prune(run.files.checkpoints, progress.step, keep, needed)


def restore(parts: Parts, found: Checkpoint) -> Progress:
    """Put model, optimiser, scaler and generators where a checkpoint left them.

    On another number of ranks the generators are seeded anew from the step: the sample order stays,
    dropout differs.

    Raises:
        CheckpointError: it belongs to another experiment, or does not hold what such a checkpoint
            holds.
    """
    state = found.state
    if state.get("digest") != parts.run.digest:
        recorded = state.get("experiment") or {}
        changed = parts.run.differences(recorded) or ["the source file of a plugin"]
        raise CheckpointError(
            f"the checkpoint belongs to another experiment; they differ in: {', '.join(changed)}"
        )
    try:
        kinds = kinds_of(found.optimizer) | kinds_of(found.rng)
        _check_kinds(kinds, state.get("tensors", kinds))
        return _restore(parts, found)
    except (CheckpointError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        reason = error if isinstance(error, CheckpointError) else repr(error)
        where = parts.run.files.checkpoints
        raise CheckpointError(
            f"{where}: step {state['progress']['step']} cannot be used: {reason}"
        ) from error


def _check_kinds(kinds: Mapping[str, str], recorded: Mapping[str, str]) -> None:
    """Refuse state of the optimiser or of generators that is not what the checkpoint was written
    with.
    """
    wrong = differing(kinds, recorded)
    if wrong:
        first, *others = wrong
        has = kinds.get(first, "missing")
        must = recorded.get(first, "missing")
        more = f", and {len(others)} more differ" if others else ""
        raise CheckpointError(f"{first} is {has}, must be {must}{more}")


def _restore(parts: Parts, found: Checkpoint) -> Progress:
    rank = parts.group.rank
    state = found.state
    load_model(parts.bare_model, found.model)
    if parts.average:
        parts.average.restart()
        load_model(parts.bare_model, found.optimizer, _TRAINED)
    parts.updated.clear()
    parts.updated.update(load_optimizer(parts.optimizer, found.optimizer))
    progress = _progress(state["progress"])
    parts.scaler.scale = progress.loss_scale
    parts.scaler.good_steps = progress.scaler_good_steps
    if state["world_size"] == parts.group.world_size:
        load_generators(found.rng, state["rng"][rank], f"{rank}/")
    else:
        seed_everything(parts.train.seed, 2, rank, progress.step)
    return progress


def _progress(values: dict[str, Any]) -> Progress:
    progress = TypeAdapter(Progress).validate_python(values)
    for evaluation in (progress.best, progress.last):
        if evaluation:
            metrics = evaluation["metrics"]
            evaluation["metrics"] = {name: float(value) for name, value in metrics.items()}
    return progress
