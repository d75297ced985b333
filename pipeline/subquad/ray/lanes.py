"""Lanes of runs through Ray Tune: each trial of its is a lane, one process that takes one run after
the other, or waits for a Ray Train run with several workers that do.

What is done next and what is ended early is decided by the driver; Tune has the processes. One that
only waits for Ray Train reserves nothing: if it held a CPU, such processes could keep each other's
workers out.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from subquad.execution.desk import Desk
from subquad.execution.queue import MOST_STARTS
from subquad.experiment.schema import Resources
from subquad.ray.train import fit_lane, ray_files, work_in_lane, worker_bundle
from subquad.record.layout import path_at

MEMORY_OF_A_DRIVER = 1e6
"""Bytes that a process which only waits reserves: Ray wants it to ask for something."""


def fit_lanes(desk: Desk, stop: str, storage: str) -> None:
    """Let Tune have lanes until nothing is left to do.

    Args:
        stop: file that stops their workers, as they reach it.
        storage: folder for Ray's own files, as they reach it.
    """
    from ray import tune

    # It tells of processes that died, whose runs go again.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    tune.Tuner(
        tune.with_resources(tune.with_parameters(_lane, stop=stop, storage=storage), _resources),
        tune_config=tune.TuneConfig(
            search_alg=_searcher(desk),
            num_samples=-1,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(name="lanes", **ray_files(storage), verbose=0),
    ).fit()


def _searcher(desk: Desk) -> Any:
    """Our queue as Ray Tune's search algorithm: Tune is given lanes, and tells where they end."""
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
            """Tune saves it with its settings, for a resume of its own that never comes."""
            return Searcher, ()

        def suggest(self, trial_id: str) -> Any:
            """A lane's values; None: none now; FINISHED: never again."""
            if lane := desk.open(trial_id):
                return {"name": trial_id, "resources": lane.resources.model_dump(mode="json")}
            return Searcher.FINISHED if desk.idle else None

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            """Take back what the lane still has."""
            if unstarted := "" if error or not result else result.get("unstarted", ""):
                desk.close(trial_id, f"its workers found no room ({unstarted})", most=MOST_STARTS)
            else:
                desk.close(trial_id, "its process died")

        def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
            """Nothing: the folder remembers."""

    return QueueSearcher()


def _resources(config: dict[str, Any]) -> Any:
    from ray.tune import PlacementGroupFactory

    resources = Resources.model_validate(config["resources"])
    if resources.most > 1:
        return PlacementGroupFactory([{"CPU": 0, "memory": MEMORY_OF_A_DRIVER}])
    return PlacementGroupFactory([worker_bundle(resources)])


def _lane(config: dict[str, Any], stop: str, storage: str) -> dict[str, str]:
    """A lane in its process. Its death counts as one of the run that it has."""
    name = config["name"]
    resources = Resources.model_validate(config["resources"])
    if resources.most > 1:
        own = path_at(storage) / f"train-{uuid.uuid4().hex}"
        own.mkdir()
        return {"unstarted": fit_lane(name, resources, stop, str(own))}
    from subquad.engine.group import Group
    from subquad.execution.local import device_of

    work_in_lane(name, stop, Group(device=device_of(resources)))
    return {"unstarted": ""}
