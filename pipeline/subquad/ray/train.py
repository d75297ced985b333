"""Ray Train: N workers run `drivers.work`, and are started again when one of them dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from upath import UPath

from subquad.drivers.signals import stop_file_watch
from subquad.engine.loop import Judge
from subquad.errors import SubquadError
from subquad.experiment.schema import Resources
from subquad.ray.cluster import in_cluster
from subquad.ray.files import PROTOCOL
from subquad.runs import path_at

# Our own rule (resources.max_failures without a new checkpoint) ends a run that does not get on; this ends one that
# does.
_MOST_FAILURES = 1000
_RESIZE_SECONDS = 10.0
"""Between looks of an elastic group of workers for more room."""


def fitted(
    runs: Sequence[Mapping[str, Any]], resources: Resources, stop: str, storage: str, judge: Judge | None = None
) -> dict[str, Any]:
    """Do runs by Ray Train, and return what a worker returned: a user's "error" and its "kind", where there was one.

    Args:
        runs: their plain values; they share one group of workers.
        resources: number of workers and what each gets.
        stop: file that stops them, with a signal's number in it, as they reach it.
        storage: folder for Ray's own files, as they reach it.
        judge: of trials, see `Signals`.
    """
    from ray.train import FailureConfig

    failures = FailureConfig(max_failures=_MOST_FAILURES, controller_failure_limit=0)
    config = {"runs": list(runs), "stop": stop, "judge": judge}
    return _fit(_worker_main, config, resources, storage, in_search=runs[0]["is_trial"], failure_config=failures)


def call_in_worker(function: Callable[[dict[str, Any]], dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """What a module's function returns in one Ray Train worker on a cluster of our own, as a run has it.

    Args:
        config: plain values, its argument.
    """
    outcome = in_cluster(lambda storage: _fit(function, config, Resources(), storage))
    if "raised" in outcome:
        raise outcome["raised"]
    return outcome["returned"]


def _fit(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    config: dict[str, Any],
    resources: Resources,
    storage: str,
    in_search: bool = False,
    **more: Any,
) -> dict[str, Any]:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    class Trainer(TorchTrainer):
        """Without two processes of Ray's: for data sets of its own; and one that ends workers which nobody needs any
        more, but in a search: elsewhere they end with the driver.
        """

        def _create_default_callbacks(self) -> list[Any]:
            unneeded = {"DatasetsCallback"} | (set() if in_search else {"PlacementGroupCleanerCallback"})
            return [one for one in super()._create_default_callbacks() if type(one).__name__ not in unneeded]

    gpus = {"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {}
    trainer = Trainer(
        function,
        train_loop_config=config,
        torch_config=TorchConfig(
            backend="nccl" if resources.gpus_per_worker else "gloo", timeout_s=int(resources.hang_timeout_s)
        ),
        scaling_config=ScalingConfig(
            num_workers=resources.most if resources.fewest == resources.most else (resources.fewest, resources.most),
            elastic_resize_monitor_interval_s=_RESIZE_SECONDS,
            use_gpu=resources.gpus_per_worker > 0,
            resources_per_worker={"CPU": resources.cpus_per_worker} | gpus,
        ),
        run_config=RunConfig(name="subquad", **ray_files(storage), **more),
    )
    return trainer.fit().return_value or {}


def ray_files(folder: str) -> dict[str, Any]:
    """Where Ray Train keeps its own files: a folder, of the driver where machines share none."""
    if not folder.startswith(PROTOCOL):
        return {"storage_path": folder}
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    path = UPath(folder)
    return {"storage_path": path.path, "storage_filesystem": PyFileSystem(FSSpecHandler(path.fs))}


def _worker_main(config: dict[str, Any]) -> dict[str, Any]:
    """One rank. A user's mistake is returned, not raised: Ray would start the workers again for nothing.

    An error is no user's mistake where a process of the cluster did not answer.
    """
    import ray.train
    import ray.train.torch

    from subquad.drivers.work import rebuilt, work
    from subquad.engine.group import Group

    context = ray.train.get_context()
    group = Group(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    try:
        stop = stop_file_watch(path_at(config["stop"]))
        work(rebuilt(config["runs"], group), group, stop, judge=config["judge"], restarts=True)
    except SubquadError as error:
        if _unanswered(error):
            raise
        return {"error": str(error), "kind": type(error).__name__}
    return {}


def _unanswered(error: BaseException | None) -> bool:
    """Whether an error comes from a process of the cluster that did not answer, but may the next time."""
    from ray.exceptions import ActorDiedError, RayError

    if error is None or isinstance(error, ActorDiedError):
        return False
    return isinstance(error, RayError) or _unanswered(error.__cause__)
