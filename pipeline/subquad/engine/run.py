"""One run from its folder to its result: plan, data, model, loop, checkpoint, result. The same in every driver."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from functools import partial
from pathlib import Path
from typing import Literal

from subquad.cost import Cost
from subquad.data import Dataset
from subquad.engine import attempts, checkpoint, environment
from subquad.engine.attempts import Attempt
from subquad.engine.checkpoint import Checkpoint
from subquad.engine.final import conclude
from subquad.engine.group import Group
from subquad.engine.log import MetricsLog
from subquad.engine.loop import Signals, train_loop
from subquad.engine.parts import build_dataset, build_parts, training_cost
from subquad.engine.progress import Progress
from subquad.engine.result import failure_of, result_of
from subquad.engine.seal import LEDGER, Opening, Seal
from subquad.engine.state import CHECKPOINTS, restore, tidy
from subquad.engine.usage import Usage
from subquad.errors import SubquadError, TrainingFailed
from subquad.experiment import Run
from subquad.nn.kernels import check_kernels, using
from subquad.runs import ERROR, PLAN, RESULT, read_result, runs_root, write_json

Status = Literal["finished", "failed", "stopped"]


def train_run(run: Run, group: Group, signals: Signals) -> Status:
    """Do a run, or go on with it; every rank calls this. The result is in the run's result.json.

    Raises:
        UserError: the run cannot be done as it is; nothing was trained.
        Exception: whatever a plugin or a lost rank raised; the traceback is in error.txt, and the run can go on from
            its newest checkpoint.
    """
    earlier = read_result(run.folder) or {}
    if earlier.get("status") in ("finished", "pruned"):
        return "finished"
    if earlier.get("status") == "failed" and earlier.get("launch") == run.launch:
        return "failed"  # the ranks were started again for another run's sake
    try:
        return _train_run(run, group, signals)
    except TrainingFailed as error:
        return fail(run, group, str(error))
    except (Exception, SystemExit) as error:
        alike = isinstance(error, SubquadError) and (error.shared or group.world_size == 1)
        if not alike:
            _keep_first_error(run.folder / ERROR, f"rank {group.rank}\n{traceback.format_exc()}")
        if isinstance(error, SystemExit):  # else it would end the driver, and with it the runs that come after
            raise RuntimeError(f"a plugin called sys.exit({error.code!r})") from error
        if isinstance(error, SubquadError) and not alike:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


def _keep_first_error(path: Path, text: str) -> None:
    """The first rank to fail knows the cause; the others only see their peer go."""
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as stream:
        stream.write(text)


def _train_run(run: Run, group: Group, signals: Signals) -> Status:
    attempt, told = _start(run, group)
    usage = Usage(group)
    dataset, cost = group.together(partial(_counted, run, group.device.type))
    parts = build_parts(run, group, dataset)
    found = _newest(run, group, told)
    progress = restore(parts, found) if found else Progress()
    if group.first:
        write_json(run.folder / PLAN, parts.plan.numbers())
        tidy(run.folder, parts.train.keep_checkpoints, progress)
    log = MetricsLog(run.folder if group.first else None, progress.records, attempt)
    try:
        for text in told:
            log.add("event", step=progress.step, epoch=0.0, seconds=progress.seconds, text=text)
        seal = Seal(dataset, _opening(run, attempt), _ledgers(run, group))
        parts = group.together(partial(parts.with_selection, dataset, seal))
        with using(parts.train.kernels) as kernels:
            if not progress.done and not train_loop(parts, signals, progress, log, usage):
                return "stopped"
            final = None if run.is_trial else conclude(parts, seal, progress)
    finally:
        log.close()
    used = usage.to_json()
    if group.first:
        result = result_of(parts, dataset.describe(), cost, progress, attempt, final)
        result |= {"kernels": kernels, **used}
        write_json(run.folder / RESULT, result)
        if run.is_trial:  # the winner is trained anew, so hundreds of trials need not keep their weights
            shutil.rmtree(run.folder / CHECKPOINTS, ignore_errors=True)
    group.barrier()
    return "finished"


def _counted(run: Run, device: str) -> tuple[Dataset, Cost]:
    """The data set, and the cost of a step; counting seeds the generators, so it comes before the parts are built."""
    dataset = build_dataset(run)
    with using() as operations:
        cost = training_cost(run, dataset.describe())
    check_kernels(run.experiment.train.kernels, device, operations)
    return dataset, cost


def _newest(run: Run, group: Group, told: list[str]) -> Checkpoint | None:
    """The newest good checkpoint; the first rank chooses, so that no rank goes on from another one."""
    root = run.folder / CHECKPOINTS
    found = group.together(lambda: checkpoint.newest_good(root, told.append) if group.first else None)
    step = group.gather(found and found.state["progress"]["step"])[0]
    if step is None or group.first:
        return group.together(lambda: found)
    return group.together(lambda: checkpoint.read_checkpoint(root, step))


def _start(run: Run, group: Group) -> tuple[int, list[str]]:
    """Record this attempt, on the first rank; stop where attempts keep failing at one place.

    Returns:
        the attempt's number, and what the run's log should tell of it.
    """
    own = (
        attempts.read(run.folder),
        checkpoint.newest_step(run.folder / CHECKPOINTS),
        _newest_error(run.folder),
    )
    earlier, step, error = group.gather(own)[0]
    number = len(earlier) + 1
    failures = attempts.failures_without_progress(earlier, run.launch, step)
    limit = run.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before reaching a new checkpoint "
            f"(resources.max_failures: {limit}); the newest error: {error}"
        )
    return number, group.together(partial(_record, run, group, number, step))


def _record(run: Run, group: Group, number: int, step: int) -> list[str]:
    if not group.first:
        return []
    for stale in (ERROR, RESULT):
        (run.folder / stale).unlink(missing_ok=True)
    attempts.append(run.folder, Attempt(number, step, run.launch, group.world_size))
    return environment.record(run, number)


def _newest_error(folder: Path) -> str:
    try:
        return (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()[-1]
    except (OSError, IndexError):
        return "none was written: the process was killed"


def _opening(run: Run, attempt: int) -> Opening:
    return Opening(
        dataset=run.dataset_label,
        experiment=run.digest,
        protocol=run.experiment.protocol,
        run=str(run.folder),
        attempt=attempt,
    )


def _ledgers(run: Run, group: Group) -> list[Path]:
    return [run.folder / LEDGER, runs_root(run.folder) / LEDGER] if group.first else []


def fail(run: Run, group: Group, reason: str) -> Status:
    """Record that a run ended without a result; `resume` tries it again."""
    if group.first:
        write_json(run.folder / RESULT, failure_of(run, reason))
    return "failed"
