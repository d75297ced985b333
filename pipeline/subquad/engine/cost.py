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
from subquad.nn import Backbone, Task

_SAMPLES = 2  # some layers need more than one


@dataclass(frozen=True)
class Cost:
    """The cost of a step.

    Attributes:
        parameters: trainable numbers in the model.
        flops_per_step: forward and backward over the global batch; matrix products and attention only, element-wise
            work and FFTs are not counted. None where the model does not run here.
    """

    parameters: int
    flops_per_step: int | None


def count(checked: Checked, spec: DataSpec) -> Cost:
    """Count on a model of its own, on the CPU; it seeds the global generators, so count before training."""
    task = build_task(checked, spec)
    model = build_model(checked, spec, task)
    parameters = sum(one.numel() for one in model.parameters() if one.requires_grad)
    try:
        return Cost(parameters, _flops(checked, spec, task, model))
    except Exception:  # a plugin's: a kernel that needs a GPU, a layer that needs more samples, ...
        return Cost(parameters, None)


def _flops(checked: Checked, spec: DataSpec, task: Task, model: Backbone) -> int:
    train = checked.experiment.train
    batch = to_device(_samples(spec), torch.device("cpu"), parameter_dtype(train))
    with FlopCounterMode(display=False) as counter:
        output = model(batch)
        loss, _ = task.loss(output.outputs, batch)
        (loss if output.penalty is None else loss + output.penalty.sum()).backward()
    return counter.get_total_flops() * train.batch_size // _SAMPLES


def _samples(spec: DataSpec) -> dict[str, np.ndarray]:
    shape = (_SAMPLES, spec.max_len, spec.channels) if spec.modality == "series" else (_SAMPLES, spec.max_len)
    kind = np.float32 if spec.modality == "series" else np.int64
    labelled = (_SAMPLES, spec.max_len) if spec.position_labels else _SAMPLES
    batch: dict[str, np.ndarray] = {"labels": np.zeros(labelled, dtype=np.int64)}
    for side in ("", "_b") if spec.pairs else ("",):
        batch[f"inputs{side}"] = np.ones(shape, dtype=kind)
        batch[f"keep{side}"] = np.ones((_SAMPLES, spec.max_len), dtype=bool)
    return batch
