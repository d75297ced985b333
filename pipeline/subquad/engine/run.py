"""One run from its folder to its result: plan, data, model, loop, checkpoint, result. The same
in every driver.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from subquad.cost import Cost
from subquad.data import Dataset
from subquad.engine import attempts, checkpoint
from subquad.engine.checkpoint import Checkpoint
from subquad.engine.evaluate import EvaluationStopped
from subquad.engine.group import Group
from subquad.engine.inputs import (
    INIT,
    changed_weights,
    first_inputs,
    inputs_of,
    refuse_changed,
)
from subquad.engine.log import MetricsLog, Usage
from subquad.engine.loop import Signals, train_loop
from subquad.engine.model import TooLarge
from subquad.engine.parts import Parts, build_dataset, build_parts, training_cost
from subquad.engine.result import Seal, fail, result_of
from subquad.engine.state import Progress, first_progress, restore, tidy
from subquad.errors import SubquadError, TrainingFailed
from subquad.experiment import Run
from subquad.nn.kernels import check_kernels, using
from subquad.nn.numbers import single_precision
from subquad.processes import keep_strange_code_out
from subquad.record.files import write_json
from subquad.record.integrity import write_result
from subquad.record.layout import runs_root
from subquad.record.names import ERROR, OPENINGS, PLAN
from subquad.security.disk import hold, opened

Status = Literal["finished", "failed", "stopped"]


def train_run(run: Run, group: Group, signals: Signals) -> Status:
    """Do a run, or go on with it; every rank calls this. The result is in the run's result.json.

    Raises:
        UserError: the run cannot be done as it is; nothing was trained.
        Exception: whatever a plugin or a lost rank raised; the traceback is in error.txt, and the
            run can go on from its newest checkpoint.
    """
    keep_strange_code_out()
    hold(run.folder)
    earlier = run.result
    if earlier and earlier.status != "failed":
        return "finished"
    if earlier and earlier.launch == run.launch:
        return "failed"  # the ranks were started again for another run's sake
    try:
        return _train_run(run, group, signals)
    except TrainingFailed as error:
        return fail(run, group, str(error))
    except (Exception, SystemExit) as error:
        is_ours = isinstance(error, SubquadError)
        if is_ours and (error.shared or group.world_size == 1):
            raise
        # The first rank to fail knows the cause; the others only see their peer go.
        with suppress(OSError), opened(run.folder / ERROR, "x", encoding="utf-8") as stream:
            stream.write(f"rank {group.rank}\n{traceback.format_exc()}")
        if is_ours:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        # else it would end the driver, and with it the runs that come after
        if isinstance(error, SystemExit):
            raise RuntimeError(f"a plugin called sys.exit({error.code!r})") from error
        raise


def _train_run(run: Run, group: Group, signals: Signals) -> Status:
    start = attempts.start_attempt(run, group)
    warnings = list[str]()
    usage = Usage(group)
    dataset, cost = _counted(run, group)
    parts, progress = _restored(run, group, dataset, warnings.append)
    group.of_first(_begin, parts, progress)
    log = MetricsLog(run.folder if group.first else None, start.attempt, parts.plan)
    try:
        begun = start.events(progress.step)
        followed = {getattr(module, "followed", "") for module in parts.model.modules()}
        for values in sorted(followed - {""}):
            warnings.append(f"mixer parameters that follow the data: {values}")
        for text in (*begun, *warnings, *parts.plan.notes()):
            log.add("event", progress, text=text)
        ledgers = []
        if group.first:
            ledgers = [run.folder / OPENINGS, runs_root(run.folder) / OPENINGS]
        seal = Seal(dataset, run, start.attempt, ledgers)
        parts = group.together(_with_selection, parts, seal)
        result = None
        train = parts.train
        with (
            using(train.kernels) as kernels,
            single_precision(tf32=train.tf32),
            suppress(EvaluationStopped),
        ):
            if progress.done or train_loop(parts, signals, progress, log, usage):
                result = result_of(parts, seal, cost, progress, signals.stop_requested)
        if result is None:
            log.add("event", progress, text=f"interrupted at step {progress.step}, which is saved")
            return "stopped"
    finally:
        if parts.background:
            parts.background.close()
        log.close()
    result["kernels"] = kernels
    result |= usage.to_json(tokens=parts.task.counts_tokens)
    group.of_first(_end, run, result)
    return "finished"


def _restored(
    run: Run, group: Group, dataset: Dataset, warn: Callable[[str], None]
) -> tuple[Parts, Progress]:
    """What trains, where its newest checkpoint left it, with nothing but what it was started
    with.
    """
    newest = _newest(run, group, warn)
    parts = build_parts(run, group, dataset, fresh=newest is None)
    now = group.together(inputs_of, run, dataset, parts.start)
    kept = group.of_first(first_inputs, run, now)
    group.together(refuse_changed, kept, now, run.folder)
    if newest:
        parts = replace(parts, start=kept[INIT].start if INIT in kept else None)
        for change in group.of_first(changed_weights, run, kept):
            warn(f"{change}; the run goes on from its checkpoint all the same")
    return parts, group.together(restore, parts, newest) if newest else first_progress(parts)


def _begin(parts: Parts, progress: Progress) -> None:
    """Bring the run's files in line with where it goes on."""
    run = parts.run
    write_json(run.folder / PLAN, parts.plan.numbers())
    tidy(run, parts.train.keep_checkpoints, progress)
    run.files.mirror()


def _end(run: Run, result: dict[str, Any]) -> None:
    manifests = [] if run.is_trial else checkpoint.manifests(run.files.checkpoints)
    write_result(run.folder, result, *manifests)
    run.files.mirror()


def _counted(run: Run, group: Group) -> tuple[Dataset, Cost]:
    """The data set, and the cost of a step; counting seeds the generators, so it comes before
    the parts are built.
    """
    dataset = group.together(build_dataset, run)
    return dataset, group.of_first(_cost, run, dataset, group.device.type)


def _cost(run: Run, dataset: Dataset, device: str) -> Cost:
    try:
        with using() as operations:
            cost = training_cost(run, dataset.describe())
    except TooLarge as error:
        if run.experiment.resources.strategy == "ddp":
            raise
        return Cost(parameters=0, uncounted=(str(error),))
    check_kernels(run.experiment.train.kernels, device, operations)
    return cost


def _newest(run: Run, group: Group, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint; the first rank chooses, so that no rank goes on from another
    one.
    """
    root = run.files.checkpoints
    newest = None
    step = None

    def choose() -> int | None:
        nonlocal newest
        newest = checkpoint.newest_good(root, warn)
        return newest and newest.state["progress"]["step"]

    def read() -> Checkpoint | None:
        if group.first or step is None:
            return newest
        return checkpoint.read_checkpoint(root, step)

    step = group.of_first(choose)
    return group.together(read)


def _with_selection(parts: Parts, seal: Seal) -> Parts:
    """The parts with the split that the protocol selects by; of the paper's protocol that is the
    test split.
    """
    protocol = parts.run.experiment.protocol
    if protocol == "honest":
        return replace(parts, selection=seal.dataset.split("validation"))
    if protocol == "paper":
        reason = "evaluation while training, the published convention (protocol: paper)"
        return replace(parts, selection=seal.open(reason)[0])
    return parts
