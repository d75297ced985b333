"""Trials through Ray Tune: several at once, each in a process of its own or as a Ray Train run with several workers.

What is tried and what is ended early is decided by the search, from its folder; Tune has the processes. Trials with
one worker train inside Tune's own processes, which are used again. For trials with several, that process only waits
for a Ray Train run, so it reserves nothing: if it held a CPU, such processes could keep each other's workers out.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.drivers.executor import Ended, NextRun
from subquad.drivers.signals import Signum, listening, stop_file_watch
from subquad.engine.loop import Judge
from subquad.errors import SubquadError, TrainingFailed
from subquad.experiment.schema import Resources
from subquad.ray.queue import TrialQueue
from subquad.ray.train import fitted, ray_files
from subquad.runs import path_at, write_text

if TYPE_CHECKING:
    from subquad.ray.executor import RayExecutor

MEMORY_OF_A_DRIVER = 1e6
"""Bytes that a process which only waits reserves: Ray wants it to ask for something."""


def run_trials(executor: RayExecutor, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
    """As many trials at once as this machine has CPUs and GPUs for, on a Ray cluster of our own.

    A trial whose process died goes on from its newest checkpoint. See `Executor.search`.

    Raises:
        UserError: a trial is in other hands.
        TrainingFailed: Ray gave up.
    """
    with tempfile.TemporaryDirectory(prefix="subquad-tune-", ignore_cleanup_errors=True) as storage:
        stop = Path(storage) / "stop"
        with listening(stop) as signum:
            queue = TrialQueue(next_run, ended, executor.room(Resources()))
            while not signum() and queue.more():
                outcome = _fit(executor, queue, judge, stop, signum)
                if not signum():
                    _take_back(queue, outcome)
        return signum()


def _fit(executor: RayExecutor, queue: TrialQueue, judge: Judge | None, stop: Path, signum: Signum) -> dict[str, Any]:
    """Let Tune train on a cluster until the queue is empty.

    Raises:
        Exception: what went wrong in the search itself, after trials that ran were saved.
    """
    broken: list[Exception] = []

    def give_up(error: Exception) -> None:
        broken.append(error)
        write_text(stop, str(int(signal.SIGTERM)))

    def fit(storage: str) -> None:
        from ray import tune

        told = {"judge": executor.asked(judge), "stop": executor.seen(stop)}
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # it tells of trials that died, which go again
        tune.Tuner(
            tune.with_resources(tune.with_parameters(_trial, **told), _resources),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(executor, queue, lambda: bool(signum() or broken), give_up),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(name="search", **ray_files(storage), verbose=0),
        ).fit()

    outcome = executor.session(fit, signum, judge)
    if broken:
        raise broken[0]
    return outcome


def _searcher(
    executor: RayExecutor, queue: TrialQueue, stopped: Callable[[], bool], broken: Callable[[Exception], None]
):
    """Our search as Ray Tune's: Tune is given trials, and told where they end; it decides nothing.

    Args:
        stopped: whether no more shall start.
        broken: told of an error in the search, after which no more start either; Tune would wrap it in its own.
    """
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
            return Searcher, ()  # Tune saves it with its settings, for a resume of its own that never comes

        def suggest(self, trial_id: str) -> Any:
            """A trial's plain values; None: none now; FINISHED: never again."""
            try:
                if stopped():
                    return Searcher.FINISHED
                if run := queue.start(trial_id):
                    return {"run": executor.plain(run)}
                return Searcher.FINISHED if queue.idle else None
            except Exception as error:
                broken(error)
                return Searcher.FINISHED

        def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            """Give the trial back, with what its process said; nothing where that died."""
            try:
                queue.back(trial_id, None if error or not result or "error" not in result else result)
            except Exception as raised:
                broken(raised)

        def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
            """Nothing: the search's folder remembers."""

    return QueueSearcher()


def _take_back(queue: TrialQueue, outcome: dict[str, Any]) -> None:
    """After the cluster has gone: what still ran goes again, on another one."""
    if queue.idle and "raised" in outcome:
        error = outcome["raised"]
        last = str(error).strip().splitlines()
        raise TrainingFailed(
            f"Ray Tune gave up: {type(error).__name__}: {last[-1] if last else ''}; `subquad tune --resume` goes on"
        ) from error
    queue.all_back()


def _resources(config: dict[str, Any]):
    from ray.tune import PlacementGroupFactory

    resources = _resources_of(config["run"])
    if resources.most > 1:
        return PlacementGroupFactory([{"CPU": 0, "memory": MEMORY_OF_A_DRIVER}])
    gpus = {"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {}
    return PlacementGroupFactory([{"CPU": resources.cpus_per_worker} | gpus])


def _resources_of(run: Mapping[str, Any]) -> Resources:
    return Resources.model_validate(run["experiment"]["resources"])


def _trial(config: dict[str, Any], judge: Judge | None, stop: str) -> dict[str, str]:
    """A trial in its process. A user's mistake is returned, as Tune would print what is raised."""
    run = config["run"]
    train = _train_here if _resources_of(run).most == 1 else _train_ranks
    try:
        return train(run, judge, path_at(stop))
    except SubquadError as error:
        return {"error": str(error), "kind": type(error).__name__}


def _train_here(run: Mapping[str, Any], judge: Judge | None, stop: Path) -> dict[str, str]:
    from subquad.drivers.local import device_of
    from subquad.drivers.work import rebuilt, work
    from subquad.engine.group import Group

    group = Group(device=device_of(0, _resources_of(run)))
    work(rebuilt([run], group), group, stop_file_watch(stop), judge=judge, restarts=False)
    return {"error": "", "kind": ""}


def _train_ranks(run: Mapping[str, Any], judge: Judge | None, stop: Path) -> dict[str, str]:
    """Train with several workers. Any other end of Ray Train is raised, and counts as the death of a process."""
    storage = stop.parent / f"train-{uuid.uuid4().hex}"
    storage.mkdir()
    return {"error": "", "kind": ""} | fitted([run], _resources_of(run), str(stop), str(storage), judge)
