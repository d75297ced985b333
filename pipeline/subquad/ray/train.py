"""Workers of a worker group: those of Ray Train are started again when one of them dies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from subquad.execution.signals import stop_watch
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.ray.driver import ask_driver, driver_signum
from subquad.record.files import read_bytes, write_text
from subquad.record.layout import below_root
from subquad.record.names import ERROR, SEARCH, STUDY
from subquad.record.run_folder import RunFolder
from subquad.record.storage import content_of, put, remove

if TYPE_CHECKING:
    from subquad.engine.group import Group

# Our own rule (resources.max_failures without a new checkpoint) ends a run that does not get on;
# this ends one that does.
_MOST_FAILURES = 1000
NODE = "ray.io/node-id"
"""The label of a machine."""
_RESIZE_SECONDS = 10.0
"""Between looks of an elastic group of workers for more room."""
NO_START = {"WorkerGroupStartupTimeoutError": math.inf, "WorkerGroupStartupFailedError": 12}
"""Why workers could not start, as others use the room or a machine was lost, and how often in a row
that may be: to wait for room is no failure.
"""


def fit_worker_group(name: str, resources: Resources) -> str:
    """Let the workers of a group take runs by Ray Train, until there are no more.

    Args:
        name: the worker group's.
        resources: number of workers and what each gets.

    Returns:
        "", or one of `NO_START`.
    """
    from ray.train import FailureConfig

    try:
        fit_workers(
            _worker_main,
            {"name": name},
            resources,
            failure_config=FailureConfig(max_failures=_MOST_FAILURES, controller_failure_limit=0),
        )
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
    **more: Any,
) -> dict[str, Any]:
    """What a module's function returns in the workers of a Ray Train run."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    class Trainer(TorchTrainer):
        """Without a process of Ray's for data sets of its own."""

        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [each for each in callbacks if type(each).__name__ != "DatasetsCallback"]

    fewest = resources.fewest
    most = resources.most
    with TemporaryDirectory(prefix="subquad-ray-") as own:  # of Ray's own files, which nobody reads
        trainer = Trainer(
            function,
            train_loop_config=config,
            torch_config=TorchConfig(
                backend="nccl" if resources.gpus_per_worker else "gloo",
                timeout_s=int(resources.hang_timeout_s),
            ),
            scaling_config=ScalingConfig(
                num_workers=most if fewest == most else (fewest, most),
                elastic_resize_monitor_interval_s=_RESIZE_SECONDS,
                use_gpu=resources.gpus_per_worker > 0,
                resources_per_worker=worker_bundle(resources),
                label_selector=machine_of(resources),
            ),
            run_config=RunConfig(name="subquad", storage_path=own, **more),
        )
        return trainer.fit().return_value or {}


def worker_bundle(resources: Resources) -> dict[str, float]:
    """What Ray reserves for one worker."""
    bundle = {"CPU": resources.cpus_per_worker}
    if resources.gpus_per_worker:
        bundle["GPU"] = resources.gpus_per_worker
    return bundle


def machine_of(resources: Resources) -> dict[str, str]:
    """Labels of where workers may be: the machine of this process, for those that reach no
    storage.
    """
    return this_node() if resources.storage is None else {}


def this_node() -> dict[str, str]:
    """The label that the machine of this process has alone."""
    import ray

    return {NODE: ray.get_runtime_context().get_node_id()}


def _worker_main(config: dict[str, Any]) -> dict[str, Any]:
    """One rank of a worker group."""
    import ray.train
    import ray.train.torch

    from subquad.engine.group import Group

    context = ray.train.get_context()
    work_in_worker_group(
        config["name"],
        Group(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device()),
    )
    return {}


def work_in_worker_group(name: str, group: Group) -> None:
    """Do the runs that the driver gives a worker group; every rank calls this.

    Args:
        name: the worker group's.
    """
    from subquad.execution.worker import work

    def take(done: Any) -> Any:
        return ask_driver((name, done))

    brought = None

    @contextmanager
    def at(run: Run) -> Iterator[Run]:
        nonlocal brought
        with _brought(run, first=group.first) as brought:
            yield brought

    def prune_reason(folder: Path) -> str:
        assert brought is not None
        brought.files.mirror()  # what the driver judges by
        return ask_driver(("", below_root(folder)))

    work(
        take,
        group,
        stop_watch(driver_signum),
        prune_reason=prune_reason,
        at=at,
        restarts=True,
        broken=_unanswered,
    )


@contextmanager
def _brought(run: Run, *, first: bool) -> Iterator[Run]:
    """A run for this rank: one of a driver elsewhere gets a folder of this machine, whose files
    come from storage and go there.
    """
    if run.folder.is_absolute():
        yield run
        return
    with TemporaryDirectory(prefix="subquad-", ignore_cleanup_errors=True) as root:
        here = replace(run, place=Path(root, run.folder))
        files = here.files
        files.fetch()
        above = RunFolder(Path(root, *run.folder.parts[:3]), files.storage)
        if above.path != files.path:
            above.take((STUDY, SEARCH))
        cause = files.kept / ERROR
        if first:
            remove(cause)
        try:
            yield here
        except BaseException:
            own = files.path / ERROR
            try:
                write_text(own, content_of(cause))  # the first rank to fail knows it
            except FileNotFoundError:
                if own.exists():
                    put({cause: read_bytes(own)})
            raise
        finally:
            if first:
                files.mirror()


def _unanswered(error: BaseException | None) -> bool:
    """Whether an error comes from a process of the cluster that did not answer, but may the next
    time: it is no user's mistake.
    """
    from ray.exceptions import ActorDiedError, RayError

    if error is None or isinstance(error, ActorDiedError):
        return False
    return isinstance(error, RayError) or _unanswered(error.__cause__)
