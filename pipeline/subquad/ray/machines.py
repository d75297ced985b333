"""The machines of a Ray cluster that somebody else started: what room they have, and whether they
can train.

Room, data and plugins are asked of the machines that train. The driver's own needs no GPU and no
data.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from subquad.engine.attempts import installed_version
from subquad.errors import ConfigError, UserError, by_class
from subquad.execution.signals import Signum
from subquad.experiment import Study
from subquad.experiment.schema import Resources
from subquad.output.terminal import print_line
from subquad.preparation.preflight import Room, check_parts, storages
from subquad.ray.train import NODE, machine_of, worker_bundle
from subquad.record.storage import content_of, put, remove
from subquad.record.stores import place_at

_PROBE_SECONDS = 60.0
_PROBE_SECONDS_OF_A_RUN = 0.5
ROOM_SECONDS = 5.0
"""Between looks for more room."""
_LEAST_FREE = 1e9
_MOST_SKEW = 60.0
_MUST_AGREE = ("subquad", "torch", "ray")


def room_there(resources: Resources, signum: Signum = lambda: 0) -> Room:
    """What the cluster's machines have; waited for, where that is not enough for some workers
    and it may grow.
    """
    from ray.autoscaler.sdk import request_resources

    until = time.monotonic() + resources.wait_s
    requested = False
    while reason := lacking(room := room_now(resources), resources):
        if resources.storage is None or time.monotonic() >= until or signum():
            break
        if not requested:
            print_line(f"{reason}; waits for room, for {resources.wait_s:g} s at most", err=True)
            request_resources(bundles=[worker_bundle(resources)] * resources.fewest)
        requested = True
        time.sleep(ROOM_SECONDS)
    if requested:
        request_resources(bundles=[])  # else the cluster would keep its machines for ever
    return room


def room_now(resources: Resources) -> Room:
    """What the machines have that such workers may use."""
    where = "the cluster"
    if resources.storage is None:
        where = "the driver's machine (others need resources.storage, a place that all reach)"
    return Room(tuple((cpus, gpus) for _, cpus, gpus in _machines(resources)), where)


def waited_for() -> str:
    """What workers wait for that the cluster has, but other jobs use; "" for nothing."""
    import ray
    from ray.util import placement_group_table
    from ray.util.state import list_jobs

    if all(group["state"] != "PENDING" for group in placement_group_table().values()):
        return ""
    jobs = []
    with suppress(Exception):  # of Ray's: its dashboard does not answer
        for job in list_jobs(filters=[("status", "=", "RUNNING")], timeout=int(ROOM_SECONDS)):
            if job.job_id != ray.get_runtime_context().get_job_id():
                jobs.append(job.submission_id or f"of driver {job.job_id}")
    if not jobs:
        return ""
    free = ray.available_resources()
    return (
        f"waits for room: {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs are free; "
        f"other jobs: {', '.join(sorted(jobs))}"
    )


def lacking(room: Room, resources: Resources) -> str:
    """Why workers do not fit, "" where they do."""
    try:
        room.check(resources)
        return ""
    except ConfigError as error:
        return str(error)


def _machines(resources: Resources) -> list[tuple[str, float, float]]:
    """Id, CPUs and GPUs of each machine that is alive and that such workers may use."""
    import ray

    alone = machine_of(resources).get(NODE)
    found = []
    for node in ray.nodes():
        has = node["Resources"]
        if node["Alive"] and (node["NodeID"] == alone if alone else "CPU" in has):
            found.append((node["NodeID"], float(has.get("CPU", 0)), float(has.get("GPU", 0))))
    return found


def look_there(study: Study, *, writes: bool) -> None:
    """Look at every machine that may train: versions, plugins, data, disk and clock; then at data
    and models, and at storage if `writes`.

    Raises:
        UserError: what is wrong, and on which machine.
    """
    # those that may train any of the runs, each once
    nodes = dict.fromkeys(
        node
        for run in study.runs
        for node, cpus, gpus in _machines(run.experiment.resources)
        if cpus >= run.experiment.resources.cpus_per_worker
        and gpus >= run.experiment.resources.gpus_per_worker
    )
    runs = [run.as_values() for run in study.runs]
    for name, found in _on_each(
        _probe(), [*nodes], (runs,), timeout=_PROBE_SECONDS + len(runs) * _PROBE_SECONDS_OF_A_RUN
    ):
        _compare(name, found)
    marks = [
        (storage, f"runs/.probe-{secrets.token_hex(8)}")
        for storage in (storages(study) if writes else ())
    ]
    put({place_at(storage) / mark: b"" for storage, mark in marks})
    try:
        for _ in _on_each(_look, [*nodes], (study, marks), timeout=None):
            pass
    finally:
        for storage, mark in marks:
            remove(place_at(storage) / mark)


def _on_each(
    function: Callable[..., Any], nodes: list[str], given: tuple[Any, ...], timeout: float | None
) -> Iterator[tuple[str, Any]]:
    """The name of each node, and what a function returns there.

    Raises:
        UserError: what it said was wrong there, or that it could not run.
    """
    import ray
    from ray.exceptions import RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    awaited = {}
    for node in nodes:
        awaited[names[node], node] = task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(*given)
    for (name, _), answer in awaited.items():
        try:
            yield name, ray.get(answer, timeout=timeout)
        except Exception as error:  # of Ray: the machine is gone, or too slow
            cause = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(cause, UserError):
                raise type(cause)(f"machine {name}: {cause}") from error
            raise UserError(f"machine {name}: {by_class(cause)}") from error


def _probe() -> Callable[[Any], dict[str, Any]]:
    """A function that travels by its value, so that it also runs where subquad is not installed."""
    packages = _MUST_AGREE

    def probe(runs: Any) -> dict[str, Any]:
        import shutil
        import tempfile
        import time
        from importlib.metadata import PackageNotFoundError, version

        versions: dict[str, str] = {}
        for name in packages:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                raise ImportError(f"{name} is not installed there") from None
        from subquad.experiment import Run

        for run in runs:
            Run.rebuild(run)
        return {
            "versions": versions,
            "free": shutil.disk_usage(tempfile.gettempdir()).free,
            "time": time.time(),
        }

    return probe


def _compare(name: str, found: Mapping[str, Any]) -> None:
    """Refuse a machine with other versions than the driver's; tell of a full disk or a wrong
    clock.
    """
    others = [
        f"{package} {theirs}, the driver has {installed_version(package) or 'none'}"
        for package, theirs in found["versions"].items()
        if theirs != installed_version(package)
    ]
    if others:
        raise UserError(f"machine {name}: other versions than the driver's: {', '.join(others)}")
    if found["free"] < _LEAST_FREE:
        free = f"{found['free'] / 1e6:,.0f} MB"
        print_line(f"machine {name}: only {free} are free for temporary files", err=True)
    if abs(skew := found["time"] - time.time()) > _MOST_SKEW:
        print_line(f"machine {name}: its clock is {skew:+,.0f} s off the driver's", err=True)


def _look(study: Study, marks: list[tuple[str, str]]) -> None:
    """Look at a study's data, models and storage on this machine.

    Args:
        marks: storages, and the file that the driver has put into each.

    Raises:
        UserError: what is wrong.
    """
    for storage, mark in marks:
        try:
            content_of(place_at(storage) / mark)
        except FileNotFoundError:
            raise UserError(
                f"resources.storage: {storage} is not what the driver has there: give a place "
                "that all machines share"
            ) from None
    check_parts(study, writes=bool(marks))
