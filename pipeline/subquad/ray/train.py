"""The Ray Train driver: N workers run `drivers.work`, and are started again when one of them dies."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.drivers.signals import Received, listening, stop_file_watch
from subquad.engine.loop import Judge
from subquad.errors import SubquadError, TrainingFailed, UserError
from subquad.experiment.schema import Resources
from subquad.ray.cluster import local_cluster
from subquad.runs import STOP, write_text

# Our own rule (resources.max_failures without a new checkpoint) ends a run that does not get on; this ends one that
# does.
MOST_FAILURES = 1000
MOST_CONTROLLER_FAILURES = 3
GRACE_SECONDS = 60.0


def run_ray(runs: Sequence[Mapping[str, Any]], resources: Resources, folder: Path, *, system: bool) -> int:
    """Do the runs on a Ray cluster of our own. Returns the signal that stopped them, 0 where none did.

    Args:
        runs: their plain values; they share one group of workers.
        resources: number of workers and what each gets.
        folder: the run's or study's folder.
        system: sample system metrics.

    Raises:
        UserError: the runs cannot start.
        TrainingFailed: Ray gave up.
    """
    stop = folder / STOP
    stop.unlink(missing_ok=True)
    with (
        listening(on_first=lambda signum: write_text(stop, str(signum))) as received,
        tempfile.TemporaryDirectory(prefix="subquad-ray-", ignore_cleanup_errors=True) as storage,
        local_cluster(resources),
    ):
        outcome = in_thread(lambda: trainer(runs, resources, stop, storage, system).fit().return_value, received)
    _raise(outcome, received)
    return received.signum


def in_thread(fit: Callable[[], Any], received: Received) -> dict[str, Any]:
    """Fit in a side thread: there Ray leaves the signal handlers alone, and this thread can answer them.

    Returns:
        what it "returned" or "raised"; nothing where it had not ended some time after a signal.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["returned"] = fit()
        except BaseException as error:  # also what Ray raises as SystemExit
            outcome["raised"] = error

    thread = threading.Thread(target=run, name="ray", daemon=True)
    thread.start()
    waited = 0.0
    while thread.is_alive() and waited < GRACE_SECONDS:
        thread.join(timeout=0.2)
        waited += 0.2 if received.signum else 0.0
    return outcome


def trainer(
    runs: Sequence[Mapping[str, Any]],
    resources: Resources,
    stop: Path,
    storage: str,
    system: bool,
    judge: Judge | None = None,
):
    """A Ray Train run over the runs.

    Args:
        runs: their plain values; they share one group of workers.
        resources: number of workers and what each gets.
        stop: file that stops them, with a signal's number in it.
        storage: folder for Ray's own files.
        system: sample system metrics.
        judge: of trials, see `Signals`.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    gpus = {"GPU": resources.gpus_per_worker} if resources.gpus_per_worker else {}
    each = {"CPU": resources.cpus_per_worker} | gpus
    return TorchTrainer(
        _worker_main,
        train_loop_config={"runs": list(runs), "stop": str(stop), "system": system, "judge": judge},
        torch_config=TorchConfig(
            backend="nccl" if resources.gpus_per_worker else "gloo", timeout_s=int(resources.hang_timeout_s)
        ),
        scaling_config=ScalingConfig(
            num_workers=resources.workers, use_gpu=resources.gpus_per_worker > 0, resources_per_worker=each
        ),
        run_config=RunConfig(
            name="subquad",
            storage_path=storage,
            failure_config=FailureConfig(max_failures=MOST_FAILURES, controller_failure_limit=MOST_CONTROLLER_FAILURES),
        ),
    )


def _worker_main(config: dict[str, Any]) -> dict[str, Any]:
    """One rank. A user's mistake is returned, not raised: Ray would start the workers again for nothing."""
    import ray.train
    import ray.train.torch

    from subquad.drivers.system import SystemSampler
    from subquad.drivers.work import rebuilt, work
    from subquad.engine.group import Group
    from subquad.engine.loop import Signals

    context = ray.train.get_context()
    group = Group(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    sampler = SystemSampler().latest if config["system"] and group.first else dict
    try:
        signals = Signals(stop_file_watch(Path(config["stop"])), sampler, config["judge"])
        work(rebuilt(config["runs"], group), group, signals, restarts=True)
    except SubquadError as error:
        return {"error": str(error), "kind": type(error).__name__}
    return {}


def _raise(outcome: dict[str, Any], received: Received) -> None:
    returned, raised = outcome.get("returned"), outcome.get("raised")
    if returned and "error" in returned:
        import subquad.errors

        raise getattr(subquad.errors, returned["kind"], UserError)(returned["error"])
    if raised is not None and not received.signum:
        last = str(raised).strip().splitlines()
        raise TrainingFailed(
            f"Ray Train gave up: {type(raised).__name__}: {last[-1] if last else ''}; `subquad resume` goes on from "
            "the newest checkpoint"
        ) from raised
