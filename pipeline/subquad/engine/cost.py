"""What a training step costs: parameters, and floating-point operations of its matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from subquad.data import DataSpec
from subquad.engine.feed import to_device
from subquad.engine.parts import build_model, build_task
from subquad.engine.precision import parameter_dtype
from subquad.experiment import Checked


@dataclass(frozen=True)
class Cost:
    """The cost of a step.

    Attributes:
        parameters: trainable numbers in the model.
        flops_per_step: forward and backward over the global batch; matrix products and attention only, element-wise
            work and FFTs are not counted.
    """

    parameters: int
    flops_per_step: int


def count(checked: Checked, spec: DataSpec) -> Cost:
    """Count on one sample of the described shape, on the CPU; nothing of the run's randomness is used up."""
    with torch.random.fork_rng(devices=[]):
        task = build_task(checked, spec)
        model = build_model(checked, spec, task)
        train = checked.experiment.train
        batch = to_device(_sample(spec), torch.device("cpu"), parameter_dtype(train))
        with FlopCounterMode(display=False) as counter:
            output = model(batch)
            loss, _ = task.loss(output.outputs, batch)
            (loss if output.penalty is None else loss + output.penalty.sum()).backward()
    parameters = sum(one.numel() for one in model.parameters() if one.requires_grad)
    return Cost(parameters, counter.get_total_flops() * train.batch_size)


def _sample(spec: DataSpec) -> dict[str, np.ndarray]:
    shape = (1, spec.max_len, spec.channels) if spec.modality == "series" else (1, spec.max_len)
    kind = np.float32 if spec.modality == "series" else np.int64
    return {
        "inputs": np.ones(shape, dtype=kind),
        "keep": np.ones((1, spec.max_len), dtype=bool),
        "labels": np.zeros(1, dtype=np.int64),
    }
