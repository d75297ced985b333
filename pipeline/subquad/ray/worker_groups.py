"""Worker groups through Ray Tune: each trial of its is one, a process that takes one run after the
other, or waits for a Ray Train run with several workers that do.

What is done next and what is ended early is decided by the driver; Tune has the processes. One that
only waits for Ray Train is on the driver's machine and reserves nothing: if it held a CPU, such
processes could keep each other's workers out.
"""

from __future__ import annotations

import logging
from tempfile import TemporaryDirectory
from typing import Any

from subquad.execution.dispatcher import Dispatcher
from subquad.experiment.schema import Resources
from subquad.ray.train import (
    NO_START,
    fit_worker_group,
    machine_of,
    this_node,
    work_in_worker_group,
    worker_bundle,
)


def fit_worker_groups(dispatcher: Dispatcher) -> None:
    """Let Tune have worker groups until nothing is left to do."""
    from ray import tune

    # It tells of processes that died, whose runs go again.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    with TemporaryDirectory(prefix="subquad-ray-", ignore_cleanup_errors=True) as folder:
        tune.Tuner(
            tune.with_resources(_worker_group, _place),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(dispatcher),
                num_samples=-1,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(name="worker_groups", storage_path=folder, verbose=0),
        ).fit()


def _searcher(dispatcher: Dispatcher) -> Any:
    """Our queue as Ray Tune's search algorithm: Tune is given groups, and tells where they end."""
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
            """Tune saves it with its settings, for a resume of its own that never comes."""
            return Searcher, ()

        def suggest(self, trial_id: str) -> Any:
            """A group's values; None: none now; FINISHED: never again."""
            if group := dispatcher.open(trial_id):
                return {
                    "name": trial_id,
                    "resources": group.resources.model_dump(mode="json"),
                }
            return Searcher.FINISHED if dispatcher.idle else None

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            """Take back what the worker group still has."""
            if unstarted := "" if error or not result else result.get("unstarted", ""):
                dispatcher.close(
                    trial_id, f"its workers found no room ({unstarted})", most=NO_START[unstarted]
                )
            else:
                dispatcher.close(trial_id, "its process died")

        def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
            """Nothing: the folder remembers."""

    return QueueSearcher()


def _place(config: dict[str, Any]) -> Any:
    from ray.tune import PlacementGroupFactory

    resources = Resources.model_validate(config["resources"])
    bundle = worker_bundle(resources)
    machine = machine_of(resources)
    if resources.most > 1:
        bundle = {"memory": 1.0}  # Tune wants something to be reserved
        machine = this_node()
    return PlacementGroupFactory([bundle], bundle_label_selector=[machine])


def _worker_group(config: dict[str, Any]) -> dict[str, str]:
    """A worker group in its process. Its death counts as one of the run that it has."""
    name = config["name"]
    resources = Resources.model_validate(config["resources"])
    if resources.most > 1:
        return {"unstarted": fit_worker_group(name, resources)}
    from subquad.engine.group import Group
    from subquad.execution.local import device_of

    work_in_worker_group(name, Group(device=device_of(resources)))
    return {"unstarted": ""}
