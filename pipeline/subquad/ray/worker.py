"""One call in one Ray Train worker on a cluster of our own, as a run has it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from subquad.experiment.schema import Resources
from subquad.ray.cluster import local_cluster


def call_in_worker(function: Callable[[dict[str, Any]], dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    """What a module's function returns there.

    Args:
        config: plain values, its argument.
    """
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as storage, local_cluster(Resources()):
        trainer = TorchTrainer(
            function,
            train_loop_config=config,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(name="bench", storage_path=storage),
        )
        return trainer.fit().return_value or {}
