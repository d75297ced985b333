"""Workers of a worker group: those of Ray Train are started again when one of them dies."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upath import UPath

from subquad.execution.signals import stop_file_watch
from subquad.experiment.schema import Resources
from subquad.ray.files import PROTOCOL, ask_driver
from subquad.record.layout import path_at

if TYPE_CHECKING:
    from ray.train import ScalingConfig

    from subquad.engine.group import Group

# Our own rule (resources.max_failures without a new checkpoint) ends a run that does not get on;
# this ends one that does.
_MOST_FAILURES = 1000
_RESIZE_SECONDS = 10.0
"""Between looks of an elastic group of workers for more room."""
NO_START = {"WorkerGroupStartupTimeoutError": math.inf, "WorkerGroupStartupFailedError": 12}
"""Why workers could not start, as others use the room or a machine was lost, and how often in a row
that may be: to wait for room is no failure.
"""


def fit_worker_group(name: str, resources: Resources, stop: str, storage: str) -> str:
    """Let the workers of a group take runs by Ray Train, until there are no more.

    Args:
        name: the worker group's.
        resources: number of workers and what each gets.
        stop: file that stops them, with a signal's number in it, as they reach it.
        storage: folder for Ray's own files, as they reach it.

    Returns:
        "", or one of `NO_START`.
    """
    from ray.train import FailureConfig

    failures = FailureConfig(max_failures=_MOST_FAILURES, controller_failure_limit=0)
    config = {"name": name, "stop": stop}
    try:
        fit_workers(_worker_main, config, resources, storage, failure_config=failures)
    except Exception as error:
        cause = type(getattr(error, "controller_failure", error)).__name__
        if cause not in NO_START:
            raise
        return cause
    return ""


def fit_workers(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    config: dict[str, Any],
    resources: Resources,
    storage: str,
    **more: Any,
) -> dict[str, Any]:
    """What a module's function returns in the workers of a Ray Train run."""
    from ray.train import RunConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    class Trainer(TorchTrainer):
        """Without a process of Ray's for data sets of its own."""

        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [each for each in callbacks if type(each).__name__ != "DatasetsCallback"]

    trainer = Trainer(
        function,
        train_loop_config=config,
        torch_config=TorchConfig(
            backend="nccl" if resources.gpus_per_worker else "gloo",
            timeout_s=int(resources.hang_timeout_s),
        ),
        scaling_config=_workers(resources),
        run_config=RunConfig(name="subquad", **ray_files(storage), **more),
    )
    return trainer.fit().return_value or {}


def _workers(resources: Resources) -> ScalingConfig:
    from ray.train import ScalingConfig

    fewest = resources.fewest
    most = resources.most
    return ScalingConfig(
        num_workers=most if fewest == most else (fewest, most),
        elastic_resize_monitor_interval_s=_RESIZE_SECONDS,
        use_gpu=resources.gpus_per_worker > 0,
        resources_per_worker=worker_bundle(resources),
    )


def worker_bundle(resources: Resources) -> dict[str, float]:
    """What Ray reserves for one worker."""
    gpus = {"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {}
    return {"CPU": resources.cpus_per_worker, **gpus}


def ray_files(folder: str) -> dict[str, Any]:
    """Where Ray Train keeps its own files: a folder, of the driver where machines share none."""
    if not folder.startswith(PROTOCOL):
        return {"storage_path": folder}
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    path = UPath(folder)
    return {"storage_path": path.path, "storage_filesystem": PyFileSystem(FSSpecHandler(path.fs))}


def _worker_main(config: dict[str, Any]) -> dict[str, Any]:
    """One rank of a worker group."""
    import ray.train
    import ray.train.torch

    from subquad.engine.group import Group

    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    group = Group(context.get_world_rank(), context.get_world_size(), device)
    work_in_worker_group(config["name"], config["stop"], group)
    return {}


def work_in_worker_group(name: str, stop: str, group: Group) -> None:
    """Do the runs that the driver gives a worker group; every rank calls this.

    Args:
        name: the worker group's.
        stop: file that stops its workers, as they reach it.
    """
    from subquad.execution.worker import work

    def take(done: Any) -> Any:
        return ask_driver((name, done))

    def prune_reason(folder: Path) -> str:
        return ask_driver(("", folder.path if isinstance(folder, UPath) else str(folder)))

    watch = stop_file_watch(path_at(stop))
    work(take, group, watch, prune_reason=prune_reason, restarts=True, broken=_unanswered)


def _unanswered(error: BaseException | None) -> bool:
    """Whether an error comes from a process of the cluster that did not answer, but may the next
    time: it is no user's mistake.
    """
    from ray.exceptions import ActorDiedError, RayError

    if error is None or isinstance(error, ActorDiedError):
        return False
    return isinstance(error, RayError) or _unanswered(error.__cause__)
