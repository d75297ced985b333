"""Metrics of a split, from exact sums over all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split
from subquad.engine.feed import to_device
from subquad.engine.parts import Parts
from subquad.engine.plan import evaluation_requests
from subquad.engine.precision import autocast, parameter_dtype


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a split.

    Attributes:
        metrics: by name.
        samples: number of samples.
        arrays: per-sample arrays in the split's order, where they were asked for.
    """

    metrics: Mapping[str, float]
    samples: int
    arrays: Mapping[str, np.ndarray]


@torch.no_grad()
def evaluate(parts: Parts, split: Split, *, per_sample: bool = False) -> Evaluation:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result."""
    model, group, train = parts.bare_model, parts.group, parts.train
    sharded = model is parts.model and group.world_size > 1
    group.share_buffers(model)
    sums: dict[str, Tensor] = {}
    rows: list[dict[str, np.ndarray]] = []
    model.eval()
    size = train.eval_batch_size or train.batch_size
    for request in evaluation_requests(len(split), group.rank, group.world_size, size):
        if not (request.real or sharded):
            continue
        arrays = split.fetch(request.indices, epoch=request.epoch, seed=train.seed)
        batch = to_device(arrays, group.device, parameter_dtype(train))
        with autocast(train, group.device):
            outputs = model(batch).outputs
        found = parts.task.sums(outputs, batch)
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + (value if request.real else 0 * value)
        if per_sample and request.real:
            rows.append({name: value.cpu().numpy() for name, value in parts.task.per_sample(outputs, batch).items()})
    model.train()
    sums = _complete(parts, sums)
    return Evaluation(parts.task.metrics(sums), len(split), _join(group.gather(rows)) if per_sample else {})


def _complete(parts: Parts, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add over ranks, also where a rank had no sample and so does not know the shapes."""
    if parts.group.world_size == 1:
        return sums
    shapes = next(
        shape for shape in parts.group.gather({k: (tuple(v.shape), v.dtype) for k, v in sums.items()}) if shape
    )
    own = {
        name: sums.get(name, torch.zeros(shape, dtype=dtype, device=parts.group.device))
        for name, (shape, dtype) in shapes.items()
    }
    return parts.group.add_tensors(own)


def _join(ranks: list[list[dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
    rows = [row for rank in ranks for row in rank]
    return {name: np.concatenate([row[name] for row in rows]) for name in (rows[0] if rows else {})}
