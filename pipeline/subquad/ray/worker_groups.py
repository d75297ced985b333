"""Worker groups on Ray: each has a process that takes one run after the other, or waits for a Ray
Train run with several workers that do.

What is done next and what is ended early is decided by the driver; Ray has the processes. One that
only waits for Ray Train is on the driver's machine and reserves nothing: if it held a CPU, such
processes could keep each other's workers out.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from subquad.execution.dispatcher import Dispatcher
from subquad.experiment.schema import Resources
from subquad.ray.train import (
    HERE_SHARE,
    NO_START,
    fit_worker_group,
    work_in_worker_group,
    worker_bundle,
)

_POLL_SECONDS = 0.2


def fit_worker_groups(dispatcher: Dispatcher, here: str) -> None:
    """Let Ray have worker groups until nothing is left to do.

    Args:
        here: see `worker_bundle`.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util import remove_placement_group

    names = map(str, itertools.count())
    name = next(names)
    going: dict[Any, tuple[str, Any]] = {}
    while True:
        while group := dispatcher.open(name):
            process, place = _started(name, group.resources, here)
            going[process] = name, place
            name = next(names)
        if not going:
            return
        ended, _ = ray.wait([*going], timeout=_POLL_SECONDS)
        for process in ended:
            closed, place = going.pop(process)
            how = "its process died"
            unstarted: Any = ""
            with suppress(RayError):
                unstarted = ray.get(process)
            if unstarted:
                how = f"its workers found no room ({unstarted})"
            dispatcher.close(closed, how, most=NO_START.get(unstarted, 0))
            remove_placement_group(place)


def _started(name: str, resources: Resources, here: str) -> tuple[Any, Any]:
    """The process of a worker group, which waits for its place, and that."""
    import ray
    from ray.util import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundle = worker_bundle(resources, here) if resources.most == 1 else {here: HERE_SHARE}
    place = placement_group([bundle])
    make: Any = ray.remote(
        num_cpus=bundle.get("CPU", 0),
        num_gpus=bundle.get("GPU", 0),
        max_calls=1,
        max_retries=0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(place),
    )
    return make(_worker_group).remote(name, resources, here), place


def _worker_group(name: str, resources: Resources, here: str) -> str:
    """A worker group in its process, whose death counts as one of the run that it has.

    Returns:
        "", or one of `NO_START`.
    """
    if resources.most > 1:
        return fit_worker_group(name, resources, here)
    from subquad.engine.group import Group
    from subquad.execution.local import device_of

    work_in_worker_group(name, Group(device=device_of(resources)))
    return ""
