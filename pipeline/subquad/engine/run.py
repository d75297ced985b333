"""One run from its folder to its result: plan, data, model, loop, checkpoint, result. The same in every driver."""

from __future__ import annotations

import contextlib
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from subquad.cost import Cost
from subquad.data import Dataset, DataSpec, SplitName
from subquad.engine import attempts, checkpoint, environment
from subquad.engine.attempts import Attempt
from subquad.engine.buckets import training_buckets
from subquad.engine.checkpoint import Checkpoint
from subquad.engine.final import conclude
from subquad.engine.group import Group
from subquad.engine.log import MetricsLog
from subquad.engine.loop import Course, train
from subquad.engine.parts import build_dataset, build_model, build_parts, build_task, training_cost
from subquad.engine.plan import Plan
from subquad.engine.progress import Progress
from subquad.engine.result import failure_of, result_of
from subquad.engine.schedule import build_schedule
from subquad.engine.seal import LEDGER, Opening, Seal
from subquad.engine.state import CHECKPOINTS, restore, tidy
from subquad.engine.ticket import Ticket, dataset_label
from subquad.errors import SubquadError, TrainingFailed
from subquad.experiment.schema import Experiment
from subquad.nn import Backbone, Task
from subquad.nn.kernels import check_kernels, using
from subquad.plugin import TaskPlugin
from subquad.runs import ERROR, PLAN, RESULT, read_result, write_json

Status = Literal["finished", "failed", "stopped"]

Judge = Callable[[Ticket, Progress], str]


def never(ticket: Ticket, progress: Progress) -> str:
    """The judge that lets every trial go on."""
    return ""


@dataclass(frozen=True)
class Signals:
    """How the outside reaches a rank.

    Attributes:
        asked_to_stop: a signal number once the run shall save and stop, else 0.
        system: newest system metrics.
        judge: of a trial: why it shall end after the evaluation it just had, "" where it shall go on.
    """

    asked_to_stop: Callable[[], int] = lambda: 0
    system: Callable[[], dict[str, float]] = field(default=dict)
    judge: Judge = never


def train_run(ticket: Ticket, group: Group, signals: Signals) -> Status:
    """Do a run, or go on with it; every rank calls this. The result is in the run's result.json.

    Raises:
        UserError: the run cannot be done as it is; nothing was trained.
        Exception: whatever a plugin or a lost rank raised; the traceback is in error.txt, and the run can go on from
            its newest checkpoint.
    """
    earlier = read_result(ticket.folder) or {}
    if earlier.get("status") in ("finished", "pruned"):
        return "finished"
    if earlier.get("status") == "failed" and earlier.get("session") == ticket.session:
        return "failed"  # the ranks were started again for another run's sake
    try:
        return _train_run(ticket, group, signals)
    except TrainingFailed as error:
        return fail(ticket, group, str(error))
    except (Exception, SystemExit) as error:
        alike = isinstance(error, SubquadError) and (error.shared or group.world_size == 1)
        if not alike:
            _keep_first_error(ticket.folder / ERROR, f"rank {group.rank}\n{traceback.format_exc()}")
        if isinstance(error, SystemExit):  # else it would end the driver, and with it the runs that come after
            raise RuntimeError(f"a plugin called sys.exit({error.code!r})") from error
        if isinstance(error, SubquadError) and not alike:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


def _keep_first_error(path: Path, text: str) -> None:
    """The first rank to fail knows the cause; the others only see their peer go."""
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as stream:
        stream.write(text)


def _train_run(ticket: Ticket, group: Group, signals: Signals) -> Status:
    checked = ticket.checked
    attempt, told = _start(ticket, group)
    built = group.together(partial(_build, ticket, group.device.type))
    parts = build_parts(checked, built.task, built.model, group)
    found = _newest(ticket, group, told)
    progress = restore(parts, found, checked.experiment, ticket.digest) if found else Progress()
    if group.first:
        write_json(ticket.folder / PLAN, built.plan.numbers())
        tidy(ticket.folder, parts.train.keep_checkpoints, progress)
    log = MetricsLog(ticket.folder if group.first else None, progress.records, attempt)
    try:
        for text in told:
            log.add("event", step=progress.step, epoch=0.0, seconds=progress.seconds, text=text)
        seal = Seal(built.dataset, _opening(ticket, attempt), _ledgers(ticket, group))
        course = group.together(lambda: _course(ticket, built, seal, signals))
        with using(parts.train.kernels) as kernels:
            if not progress.done and not train(parts, course, progress, log):
                return "stopped"
            final = (
                None if ticket.trial else conclude(parts, ticket.folder, checked.experiment.protocol, seal, progress)
            )
    finally:
        log.close()
    if group.first:
        result = result_of(ticket, built.spec, built.cost, built.plan, progress, attempt, final)
        result["kernels"] = kernels
        write_json(ticket.folder / RESULT, result)
        if ticket.trial:  # the winner is trained anew, so hundreds of trials need not keep their weights
            shutil.rmtree(ticket.folder / CHECKPOINTS, ignore_errors=True)
    group.barrier()
    return "finished"


@dataclass(frozen=True)
class _Built:
    """What each rank builds for itself, without a collective call."""

    dataset: Dataset
    spec: DataSpec
    plan: Plan
    task: Task
    model: Backbone
    cost: Cost


def _build(ticket: Ticket, device: str) -> _Built:
    dataset = build_dataset(ticket.checked, ticket.data_root)
    spec = dataset.describe()
    plan = make_plan(ticket.checked.experiment, dataset)
    with using() as operations:
        cost = training_cost(ticket.checked, spec)
    check_kernels(ticket.checked.experiment.train.kernels, device, operations)
    task = build_task(ticket.checked, spec)
    return _Built(dataset, spec, plan, task, build_model(ticket.checked, spec, task), cost)


def _newest(ticket: Ticket, group: Group, told: list[str]) -> Checkpoint | None:
    """The newest good checkpoint; the first rank chooses, so that no rank goes on from another one."""
    root = ticket.folder / CHECKPOINTS
    found = group.together(lambda: checkpoint.newest_good(root, told.append) if group.first else None)
    step = group.gather(found and found.state["progress"]["step"])[0]
    if step is None or group.first:
        return group.together(lambda: found)
    return group.together(lambda: checkpoint.read(root, step))


def make_plan(experiment: Experiment, dataset: Dataset) -> Plan:
    """The order of samples: the training part under the honest protocol, else all of TRAIN.

    Raises:
        DataError: no validation part can be cut from TRAIN.
        ConfigError: `train.bucket_batches` cannot work with the data, or has no effect.
    """
    settings = experiment.train
    name: SplitName = "train" if experiment.protocol == "honest" else "trainval"
    spec = dataset.describe()
    size = spec.sizes[name] if name in spec.sizes else len(dataset.split(name))
    total = settings.steps or (settings.epochs or 0) * -(-size // settings.batch_size)
    pool = settings.bucket_batches
    buckets = training_buckets(pool, spec, dataset.split(name)) if pool else None
    return Plan(size, settings.batch_size, settings.seed, total, buckets)


def _course(ticket: Ticket, built: _Built, seal: Seal, signals: Signals) -> Course:
    experiment, task = ticket.checked.experiment, ticket.checked.task.plugin
    assert isinstance(task, TaskPlugin)
    dataset, plan = built.dataset, built.plan
    honest = experiment.protocol == "honest"
    selection = None
    if honest:
        selection = dataset.split("validation")
    elif experiment.protocol == "paper":
        selection = seal.open("evaluation while training, the published convention (protocol: paper)")
    return Course(
        run=ticket.folder,
        experiment=experiment,
        digest=ticket.digest,
        plan=plan,
        schedule=build_schedule(experiment.train, plan.total_steps),
        training=dataset.split("train" if honest else "trainval"),
        selection=selection,
        selection_name="validation" if honest else "test",
        task=task,
        asked_to_stop=signals.asked_to_stop,
        system=signals.system,
        judge=(lambda progress: signals.judge(ticket, progress)) if ticket.trial else (lambda progress: ""),
    )


def _start(ticket: Ticket, group: Group) -> tuple[int, list[str]]:
    """Record this attempt, on the first rank; stop where attempts keep failing at one place.

    Returns:
        the attempt's number, and what the run's log should tell of it.
    """
    own = (
        attempts.read(ticket.folder),
        checkpoint.newest_step(ticket.folder / CHECKPOINTS),
        _newest_error(ticket.folder),
    )
    earlier, step, error = group.gather(own)[0]
    number = len(earlier) + 1
    failures = attempts.failures_without_progress(earlier, ticket.session, step)
    limit = ticket.checked.experiment.resources.max_failures
    if failures > limit:
        raise TrainingFailed(
            f"{failures} attempts in a row failed after step {step} before reaching a new checkpoint "
            f"(resources.max_failures: {limit}); the newest error: {error}"
        )
    return number, group.together(partial(_record, ticket, group, number, step))


def _record(ticket: Ticket, group: Group, number: int, step: int) -> list[str]:
    if not group.first:
        return []
    for stale in (ERROR, RESULT):
        (ticket.folder / stale).unlink(missing_ok=True)
    attempts.append(ticket.folder, Attempt(number, step, ticket.session, group.world_size))
    return environment.record(ticket.folder, ticket.checked, number)


def _newest_error(folder: Path) -> str:
    try:
        return (folder / ERROR).read_text(encoding="utf-8").strip().splitlines()[-1]
    except (OSError, IndexError):
        return "none was written: the process was killed"


def _opening(ticket: Ticket, attempt: int) -> Opening:
    return Opening(
        dataset=dataset_label(ticket.checked),
        experiment=ticket.digest,
        protocol=ticket.checked.experiment.protocol,
        run=str(ticket.folder),
        attempt=attempt,
    )


def _ledgers(ticket: Ticket, group: Group) -> list[Path]:
    return [ticket.folder / LEDGER, ticket.runs_root / LEDGER] if group.first else []


def fail(ticket: Ticket, group: Group, reason: str) -> Status:
    """Record that a run ended without a result; `resume` tries it again."""
    if group.first:
        write_json(ticket.folder / RESULT, failure_of(ticket, reason))
    return "failed"
