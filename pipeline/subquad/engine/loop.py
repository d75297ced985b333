"""The training loop: steps, logging, evaluation, checkpoints, stopping. It knows nothing of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from subquad.engine import faults
from subquad.engine.evaluate import evaluate
from subquad.engine.feed import training_batches
from subquad.engine.log import MetricsLog
from subquad.engine.parts import Parts
from subquad.engine.precision import parameter_dtype
from subquad.engine.progress import Progress
from subquad.engine.state import save
from subquad.engine.step import StepOutcome, train_step
from subquad.engine.usage import Usage
from subquad.errors import TrainingFailed
from subquad.experiment import Run
from subquad.experiment.schema import Train
from subquad.plan import Plan

SYSTEM_SECONDS = 10.0

Judge = Callable[[Run, Progress], str]


def never(run: Run, progress: Progress) -> str:
    """The judge that lets every trial go on."""
    return ""


@dataclass(frozen=True)
class Signals:
    """How the outside reaches a rank.

    Attributes:
        asked_to_stop: a signal number once the run shall save and stop, else 0.
        system: newest system metrics, empty where they are not wanted.
        judge: why a trial shall end after the evaluation it just had, "" where it shall go on; asked on the first rank.
    """

    asked_to_stop: Callable[[], int] = lambda: 0
    system: Callable[[], dict[str, float]] = field(default=dict)
    judge: Judge = never


def train_loop(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog, usage: Usage) -> bool:
    """Train from where `progress` stands to the end. Returns False where it was asked to stop and saved.

    Raises:
        TrainingFailed: too many non-finite steps in a row.
    """
    clock = _Clock(progress.seconds)
    plan, settings = parts.plan, parts.train
    feed = training_batches(
        parts.training,
        parts.task.spec.arrays,
        plan,
        progress.step,
        parts.group,
        settings.micro_batch,
        settings.loader_workers,
        parameter_dtype(settings),
    )
    usage.step_starts()
    for micros in feed:
        faults.point("step")
        samples = len(plan.batch(progress.step)[1])
        logged = (progress.step + 1) % settings.log_every == 0
        rates = parts.schedule(progress.updates)
        outcome = train_step(parts, micros, samples, rates, extras=logged, stop=signals.asked_to_stop() > 0)
        progress.step += 1
        progress.seconds = clock.seconds()
        _count(parts, progress, outcome, settings.max_skipped_steps, log)
        if logged:
            _log_step(parts, progress, outcome, rates.lr, log)
        usage.step_ended()
        clock.every(SYSTEM_SECONDS, lambda: _log_system(parts, signals, progress, log))
        saved = _milestones(parts, signals, progress, log)
        if progress.done:
            return True
        if outcome.stop:
            if not saved:
                _save(parts, progress, log)
            return False
        usage.step_starts()
    return True


class _Clock:
    """Training seconds over attempts, from a monotonic clock, and a coarse timer."""

    def __init__(self, before: float):
        self._start = time.monotonic() - before
        self._fired = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def every(self, interval: float, action: Callable[[], None]) -> None:
        if time.monotonic() - self._fired >= interval:
            self._fired = time.monotonic()
            action()


def _count(parts: Parts, progress: Progress, outcome: StepOutcome, limit: int, log: MetricsLog) -> None:
    if outcome.finite:
        progress.updates += 1
        progress.skipped_in_a_row = 0
        return
    if outcome.absorbed:
        _event(parts, progress, log, f"step {progress.step} skipped: fp16 overflow, the loss scale is halved")
        return
    progress.skipped += 1
    progress.skipped_in_a_row += 1
    cause = f"loss {outcome.loss}, gradient norm {outcome.grad_norm}"
    _event(parts, progress, log, f"step {progress.step} skipped on all workers: {cause}")
    if progress.skipped_in_a_row >= limit:
        raise TrainingFailed(
            f"{limit} non-finite steps in a row, the last at step {progress.step} ({cause}); none of them reached the "
            f"weights: lower train.lr, set train.clip_norm, or check the data of epoch {_epoch(parts, progress):.2f}"
        )


def _epoch(parts: Parts, progress: Progress) -> float:
    return parts.plan.epochs(progress.step)


def _event(parts: Parts, progress: Progress, log: MetricsLog, text: str) -> None:
    log.add("event", step=progress.step, epoch=_epoch(parts, progress), seconds=progress.seconds, text=text)


def _log_step(parts: Parts, progress: Progress, outcome: StepOutcome, lr: float, log: MetricsLog) -> None:
    values = {"loss": outcome.loss, "grad_norm": outcome.grad_norm, "lr": lr, **outcome.extras}
    log.add("train", step=progress.step, epoch=_epoch(parts, progress), seconds=progress.seconds, metrics=values)


def _log_system(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog) -> None:
    if values := signals.system():
        log.add("system", step=progress.step, epoch=_epoch(parts, progress), seconds=progress.seconds, metrics=values)


def _milestones(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog) -> bool:
    """Evaluate and save where it is due; True where it was saved."""
    settings, plan = parts.train, parts.plan
    ends = progress.step == plan.total_steps
    evaluates = ends or _due(settings, plan, progress.step)
    if evaluates and parts.selection is not None:
        _select(parts, progress, log)
        if not ends:
            progress.pruned = _judged(parts, signals, progress)
    impatient = settings.patience is not None and progress.stale >= settings.patience
    progress.done = ends or impatient or bool(progress.pruned)
    every = settings.checkpoint_every_steps
    due = evaluates or progress.done or (every is not None and progress.step % every == 0)
    if due:
        _save(parts, progress, log)
    return due


def _judged(parts: Parts, signals: Signals, progress: Progress) -> str:
    """The first rank's judgement of a trial, on every rank."""
    if not parts.run.is_trial:
        return ""
    own = parts.group.together(lambda: signals.judge(parts.run, progress) if parts.group.first else "")
    return parts.group.gather(own)[0]


def _due(settings: Train, plan: Plan, step: int) -> bool:
    if settings.eval_every_epochs is not None:
        epoch, position = plan.place(step)
        return position == 0 and epoch % settings.eval_every_epochs == 0
    return settings.eval_every_steps is not None and step % settings.eval_every_steps == 0


def _select(parts: Parts, progress: Progress, log: MetricsLog) -> None:
    assert parts.selection is not None
    metrics = dict(evaluate(parts, parts.selection).metrics)
    epoch = _epoch(parts, progress)
    found = {"step": progress.step, "epoch": epoch, "split": parts.selection_name, "metrics": metrics}
    progress.evaluated(found, parts.run.goal.metric, parts.run.goal.mode)
    log.add(
        "eval",
        step=progress.step,
        epoch=epoch,
        seconds=progress.seconds,
        split=parts.selection_name,
        metrics=metrics,
    )


def _save(parts: Parts, progress: Progress, log: MetricsLog) -> None:
    log.sync()
    progress.records = log.count
    save(parts, progress)
