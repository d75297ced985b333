"""The training loop: steps, logging, evaluation, checkpoints, stopping. It knows nothing of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from subquad.engine import faults
from subquad.engine.evaluate import EvaluationStopped, check_bad, evaluate
from subquad.engine.feed import Micro, share, training_batches
from subquad.engine.log import MetricsLog, Usage
from subquad.engine.optim import Rates
from subquad.engine.parts import Parts
from subquad.engine.state import Progress, save, tidy
from subquad.engine.step import UNREAD, Step, StepOutcome, read_step, train_step
from subquad.engine.tensors import generator_states, load_generators
from subquad.errors import SubquadError, TrainingFailed, by_class

SYSTEM_SECONDS = 10.0
_NAMED = 20
"""Samples of a step that an error names."""
PruneReason = Callable[[Path], str]


def no_reason(run: Path) -> str:
    """Every trial goes on."""
    return ""


@dataclass(frozen=True)
class Signals:
    """How the outside reaches a rank.

    Attributes:
        stop_requested: a signal number once the run shall save and stop, else 0.
        system: newest system metrics, empty where they are not wanted.
        prune_reason: why a trial, given by its folder, shall end after the evaluation it just had,
            "" where it shall go on; called on the first rank.
    """

    stop_requested: Callable[[], int] = lambda: 0
    system: Callable[[], dict[str, float]] = field(default=dict)
    prune_reason: PruneReason = no_reason


def train_loop(
    parts: Parts, signals: Signals, progress: Progress, log: MetricsLog, usage: Usage
) -> bool:
    """Train from where `progress` stands to the end. Returns False where it was asked to stop and
    saved.

    Raises:
        TrainingFailed: too many non-finite steps in a row.
    """
    begun = time.monotonic() - progress.seconds
    system_due = time.monotonic() + SYSTEM_SECONDS
    if not _catches_up(parts, signals, progress, log):
        return progress.done
    usage.step_starts()
    batches = training_batches(parts, progress.step, parts.train.loader_workers)
    waiting: list[Step] = []
    while True:
        logged = (progress.step + 1) % parts.train.log_every == 0
        rates = parts.schedule(progress.step)
        made = _next_step(parts, batches, progress.step, rates, logged, signals)
        if made is None:
            return True
        waiting.append(made)
        progress.step += 1
        progress.seconds = time.monotonic() - begun
        saves = _evaluates(parts, progress.step) or _is_multiple(
            progress.step, parts.train.checkpoint_every_steps
        )
        unread = 0
        if not logged and not saves:
            unread = UNREAD.get(parts.group.device.type, 1)
        outcomes = _read(parts, progress, waiting, unread, log)
        if not outcomes:
            continue
        if logged:
            log.add("train", progress, outcomes[-1].logged(rates.lr))
        usage.steps_ended([outcome.weight for outcome in outcomes])
        system_due = _note_system(signals, progress, log, system_due)
        is_stopped = any(outcome.stop for outcome in outcomes)
        if (saves or is_stopped) and _settle(parts, signals, progress, log, is_stopped):
            return progress.done
        usage.step_starts()


def _settle(
    parts: Parts, signals: Signals, progress: Progress, log: MetricsLog, is_stopped: bool
) -> bool:
    """Evaluate where it is due and nobody asked to stop, and save. Returns whether training ends
    here.
    """
    if not _due(parts, progress):
        progress.done = progress.step == parts.plan.total_steps
    elif not is_stopped:
        is_stopped = not _evaluate(parts, signals, progress, log)
    is_over = progress.done or is_stopped
    log.sync()
    save(parts, progress, is_over)
    return is_over


def _catches_up(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog) -> bool:
    """Make the evaluation that a stop cut short; the checkpoint has all else. Returns whether there
    are steps left.
    """
    if _due(parts, progress):
        if not _evaluate(parts, signals, progress, log):
            return False
        parts.group.of_first(tidy, parts.run, parts.train.keep_checkpoints, progress)
    return not progress.done


def _due(parts: Parts, progress: Progress) -> bool:
    """Whether an evaluation is to be made where the run stands."""
    is_new = progress.last.get("step", 0) != progress.step
    return is_new and parts.selection is not None and _evaluates(parts, progress.step)


def _note_system(signals: Signals, progress: Progress, log: MetricsLog, due: float) -> float:
    """Log system metrics where they are due. Returns when they are due next."""
    now = time.monotonic()
    if now < due:
        return due
    values = signals.system()
    if values:
        log.add("system", progress, values)
    return now + SYSTEM_SECONDS


def _next_step(
    parts: Parts,
    batches: Iterator[tuple[list[Micro], int]],
    step: int,
    rates: Rates,
    logged: bool,
    signals: Signals,
) -> Step | None:
    """Make one step; None after the last. An error says which samples this rank had: one may
    fail each time.
    """
    stop = signals.stop_requested() > 0
    try:
        batch = next(batches, None)
        if batch is None:
            return None
        faults.point("step")
        micros, samples = batch
        return train_step(parts, micros, samples, rates, extras=logged, stop=stop)
    except (SubquadError, OSError):
        raise
    except Exception as error:
        split = parts.training
        group = parts.group
        _, indices = parts.plan.batch(step)
        own = share(indices, group.rank, group.world_size, split.together).tolist()
        named = ", ".join(map(split.name, own[:_NAMED]))
        if len(own) > _NAMED:
            named += " ..."
        raise RuntimeError(f"step {step + 1}, {named}: {by_class(error)}") from error


def _read(
    parts: Parts, progress: Progress, waiting: list[Step], unread: int, log: MetricsLog
) -> list[StepOutcome]:
    """What the oldest steps found, in their order, and count it.

    Args:
        unread: the newest steps that may stay; none stays where a rank was asked to stop.
    """
    outcomes: list[StepOutcome] = []
    while len(waiting) > unread:
        number = progress.step - len(waiting) + 1
        step = waiting.pop(0)
        outcome = read_step(step)
        outcomes.append(outcome)
        if outcome.stop:
            unread = 0
        if outcome.finite:
            progress.skipped_in_a_row = 0
        else:
            _note_skipped(parts, progress, number, outcome, log)
        if outcome.bad:
            _note_bad(parts, progress, list(step.bad), log)
    return outcomes


def _note_skipped(
    parts: Parts, progress: Progress, step: int, outcome: StepOutcome, log: MetricsLog
) -> None:
    """Count a step that was not finite, and stop after too many in a row."""
    if outcome.absorbed:
        text = f"step {step} skipped: fp16 overflow, the loss scale is halved"
        log.add("event", progress, text=text)
        return
    progress.skipped += 1
    progress.skipped_in_a_row += 1
    cause = f"loss {outcome.loss}, gradient norm {outcome.grad_norm}"
    log.add("event", progress, text=f"step {step} skipped on all workers: {cause}")
    limit = parts.train.max_skipped_steps
    epoch = parts.plan.epochs(step)
    if progress.skipped_in_a_row >= limit:
        raise TrainingFailed(
            f"{limit} non-finite steps in a row, the last at step {step} "
            f"({cause}); none of them reached the "
            f"weights: lower train.lr, set train.clip_norm, or check the data of epoch {epoch:.2f}"
        )


def _note_bad(parts: Parts, progress: Progress, own: list[int], log: MetricsLog) -> None:
    """Name the samples of a step that could not be read, and stop where there are too many of
    them.
    """
    split = parts.training
    bad = parts.group.join(own)
    named = ", ".join(map(split.name, bad[:_NAMED]))
    log.add("event", progress, text=f"cannot be read, left out: {named}")
    samples = round(len(split) * max(1.0, parts.plan.epochs(progress.step)))
    check_bad(split, bad, parts.train.max_bad, samples, progress.bad)
    progress.bad += len(bad)


def _evaluate(parts: Parts, signals: Signals, progress: Progress, log: MetricsLog) -> bool:
    """Returns False where it was stopped, as though it had not begun."""
    assert parts.selection is not None
    metrics = None
    generators = generator_states()
    with parts.averaged(), suppress(EvaluationStopped):
        metrics, _ = evaluate(parts, parts.selection, stop_requested=signals.stop_requested)
    if metrics is None:
        load_generators(*generators)
        return False
    found = {
        "step": progress.step,
        "epoch": parts.plan.epochs(progress.step),
        "split": parts.selection_name,
        "metrics": metrics,
    }
    goal = parts.run.goal
    progress.evaluated(found, goal.metric, goal.mode)
    log.add("eval", progress, metrics, split=parts.selection_name)
    if progress.step < parts.plan.total_steps and parts.run.is_trial:
        progress.pruned = parts.group.of_first(signals.prune_reason, parts.run.folder)
    patience = parts.train.patience
    is_stale = patience is not None and progress.stale >= patience
    is_last = progress.step == parts.plan.total_steps
    progress.done = is_stale or is_last or bool(progress.pruned)
    return True


def _evaluates(parts: Parts, step: int) -> bool:
    settings = parts.train
    plan = parts.plan
    if step == plan.total_steps:
        return True
    if settings.eval_every_epochs is not None:
        epoch, position = plan.place(step)
        return position == 0 and epoch % settings.eval_every_epochs == 0
    return _is_multiple(step, settings.eval_every_steps)


def _is_multiple(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
