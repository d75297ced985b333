"""The training loop: steps, logging, evaluation, checkpoints, stopping. It knows nothing of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from subquad.engine import faults
from subquad.engine.evaluate import check_bad, evaluate
from subquad.engine.feed import Micro, share, training_batches
from subquad.engine.log import MetricsLog, Usage
from subquad.engine.optim import Rates
from subquad.engine.parts import Parts
from subquad.engine.state import Progress, save
from subquad.engine.step import Step, StepOutcome, read_steps, train_step
from subquad.errors import SubquadError, TrainingFailed

SYSTEM_SECONDS = 10.0
_NAMED = 20
"""Samples of a step that an error names."""

Judge = Callable[[Path], str]


@dataclass(frozen=True)
class Signals:
    """How the outside reaches a rank.

    Attributes:
        asked_to_stop: a signal number once the run shall save and stop, else 0.
        system: newest system metrics, empty where they are not wanted.
        judge: why a trial, given by its folder, shall end after the evaluation it just had, "" where it shall go on;
            asked on the first rank. None: every trial goes on.
    """

    asked_to_stop: Callable[[], int] = lambda: 0
    system: Callable[[], dict[str, float]] = field(default=dict)
    judge: Judge | None = None


def train_loop(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog, usage: Usage) -> bool:
    """Train from where `progress` stands to the end. Returns False where it was asked to stop and saved.

    Raises:
        TrainingFailed: too many non-finite steps in a row.
    """
    settings = parts.train
    sampled = time.monotonic()
    begun = sampled - progress.seconds
    usage.step_starts()
    batches = training_batches(parts, progress.step, settings.loader_workers)
    waiting: list[Step] = []
    while True:
        logged = (progress.step + 1) % settings.log_every == 0
        rates = parts.schedule(progress.updates)
        made = _next_step(parts, batches, progress.step, rates, extras=logged, stop=signals.asked_to_stop() > 0)
        if made is None:
            return True
        waiting.append(made)
        progress.step += 1
        progress.updates += 1  # as long as nothing else is known
        progress.seconds = time.monotonic() - begun
        if len(waiting) < settings.sync_every and not logged and not _saves(parts, progress.step):
            continue
        outcomes = _counted(parts, progress, waiting, log)
        waiting.clear()
        if logged:
            last = outcomes[-1]
            values = {"loss": last.loss, "grad_norm": last.grad_norm, "lr": rates.lr, **last.extras}
            log.add("train", progress, values)
        usage.steps_ended([one.weight for one in outcomes])
        if time.monotonic() - sampled >= SYSTEM_SECONDS:
            sampled = time.monotonic()
            if values := signals.system():
                log.add("system", progress, values)
        saved = _milestones(parts, signals, progress, log)
        if progress.done:
            return True
        if any(one.stop for one in outcomes):
            if not saved:
                _save(parts, progress, log)
            return False
        usage.step_starts()


def _next_step(
    parts: Parts, batches: Iterator[tuple[list[Micro], int]], step: int, rates: Rates, **asked: bool
) -> Step | None:
    """Make one step; None after the last. An error says which samples this rank had: one may fail each time."""
    try:
        if (batch := next(batches, None)) is None:
            return None
        faults.point("step")
        return train_step(parts, *batch, rates, **asked)
    except (SubquadError, OSError):
        raise
    except Exception as error:
        split, group = parts.training, parts.group
        mine = share(parts.plan.batch(step)[1], group.rank, group.world_size, split.together).tolist()
        samples = f"{', '.join(map(split.name, mine[:_NAMED]))}{' ...' if mine[_NAMED:] else ''}"
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise RuntimeError(f"step {step + 1}, {samples}: {said}") from error


def _counted(parts: Parts, progress: Progress, steps: Sequence[Step], log: MetricsLog) -> list[StepOutcome]:
    """What the newest steps found, in their order, with the counters brought in line."""
    outcomes = read_steps(steps)
    for number, (step, outcome) in enumerate(zip(steps, outcomes, strict=True), progress.step - len(steps) + 1):
        if outcome.finite:
            progress.skipped_in_a_row = 0
        else:
            progress.updates -= 1
            _note_skipped(parts, progress, number, outcome, log)
        if outcome.bad:
            _note_bad(parts, progress, list(step.bad), log)
    return outcomes


def _note_skipped(parts: Parts, progress: Progress, step: int, outcome: StepOutcome, log: MetricsLog) -> None:
    """Count a step that was not finite, and stop after too many in a row."""
    if outcome.absorbed:
        log.add("event", progress, text=f"step {step} skipped: fp16 overflow, the loss scale is halved")
        return
    progress.skipped += 1
    progress.skipped_in_a_row += 1
    cause = f"loss {outcome.loss}, gradient norm {outcome.grad_norm}"
    log.add("event", progress, text=f"step {step} skipped on all workers: {cause}")
    limit, epoch = parts.train.max_skipped_steps, parts.plan.epochs(step)
    if progress.skipped_in_a_row >= limit:
        raise TrainingFailed(
            f"{limit} non-finite steps in a row, the last at step {step} ({cause}); none of them reached the "
            f"weights: lower train.lr, set train.clip_norm, or check the data of epoch {epoch:.2f}"
        )


def _note_bad(parts: Parts, progress: Progress, own: list[int], log: MetricsLog) -> None:
    """Name the samples of a step that could not be read, and stop where there are too many of them."""
    bad, split = [one for some in parts.group.gather(own) for one in some], parts.training
    log.add("event", progress, text=f"cannot be read, left out: {', '.join(map(split.name, bad[:_NAMED]))}")
    samples = round(len(split) * max(1.0, parts.plan.epochs(progress.step)))
    check_bad(split, bad, parts.train.max_bad, samples, progress.bad)
    progress.bad += len(bad)


def _milestones(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog) -> bool:
    """Evaluate and save where it is due; True where it was saved."""
    settings, plan = parts.train, parts.plan
    ends = progress.step == plan.total_steps
    if _evaluates(parts, progress.step) and parts.selection is not None:
        with parts.averaged():
            metrics, _ = evaluate(parts, parts.selection)
        where = {"step": progress.step, "epoch": plan.epochs(progress.step), "split": parts.selection_name}
        progress.evaluated({**where, "metrics": metrics}, parts.run.goal.metric, parts.run.goal.mode)
        log.add("eval", progress, metrics, split=parts.selection_name)
        if not ends:
            progress.pruned = _judged(parts, signals.judge)
    impatient = settings.patience is not None and progress.stale >= settings.patience
    progress.done = ends or impatient or bool(progress.pruned)
    due = progress.done or _saves(parts, progress.step)
    if due:
        _save(parts, progress, log)
    return due


def _judged(parts: Parts, judge: Judge | None) -> str:
    """The first rank's judgement of a trial, on every rank."""
    if not parts.run.is_trial:
        return ""
    own = parts.group.together(lambda: judge(parts.run.folder) if judge and parts.group.first else "")
    return parts.group.gather(own)[0]


def _evaluates(parts: Parts, step: int) -> bool:
    settings, plan = parts.train, parts.plan
    if step == plan.total_steps:
        return True
    if settings.eval_every_epochs is not None:
        epoch, position = plan.place(step)
        return position == 0 and epoch % settings.eval_every_epochs == 0
    return settings.eval_every_steps is not None and step % settings.eval_every_steps == 0


def _saves(parts: Parts, step: int) -> bool:
    """Whether a checkpoint is due; after each evaluation one is."""
    every = parts.train.checkpoint_every_steps
    return _evaluates(parts, step) or (every is not None and step % every == 0)


def _save(parts: Parts, progress: Progress, log: MetricsLog) -> None:
    log.sync()
    progress.records = log.count
    save(parts, progress)
