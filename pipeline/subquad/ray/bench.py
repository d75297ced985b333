"""What Ray Train adds to a step: blocks of steps in one worker, with Ray's hooks attached and detached in turn.

Attached, each step looks at the driver's stop file and the whole process's CPU time counts, with everything that
Ray's own threads do meanwhile. Detached, no hook is in the loop and only the training thread's CPU time counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from subquad.bench.engine import Overhead
from subquad.experiment.schema import Resources
from subquad.ray.cluster import local_cluster


def measure(rounds: int = 15, steps: int = 2048) -> Overhead:
    """Measure in one Ray Train worker, after a warm-up round."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = Resources()
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as storage, local_cluster(resources):
        trainer = TorchTrainer(
            _blocks,
            train_loop_config={"rounds": rounds, "steps": steps, "stop": str(Path(storage) / "stop")},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(name="bench", storage_path=storage),
        )
        found = trainer.fit().return_value or {}
    return Overhead.of(found["attached"], found["detached"], steps)


def _blocks(config: dict[str, Any]) -> dict[str, list[float]]:
    import torch

    from subquad.bench.toy import build, engine_steps
    from subquad.drivers.signals import stop_file_watch

    torch.set_num_threads(1)
    steps, toy = config["steps"], build(steps=config["steps"])
    watch = stop_file_watch(Path(config["stop"]))
    attached, detached = [], []
    for number in range(config["rounds"] + 1):
        start = time.process_time()
        engine_steps(toy, steps, watch)
        middle, own = time.process_time(), time.thread_time()
        engine_steps(toy, steps)
        if number:
            attached.append(1e3 * (middle - start) / steps)
            detached.append(1e3 * (time.thread_time() - own) / steps)
    return {"attached": attached, "detached": detached}
