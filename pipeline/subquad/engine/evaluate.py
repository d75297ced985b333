"""Metrics of a split, from exact sums over all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split, sample_lengths
from subquad.engine.feed import fetched, to_device
from subquad.engine.parts import Parts
from subquad.engine.precision import autocast, parameter_dtype
from subquad.engine.requests import Request, evaluation_requests, sorted_evaluation_requests
from subquad.nn import Backbone


@dataclass(frozen=True)
class SplitEvaluation:
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
def evaluate(parts: Parts, split: Split, *, per_sample: bool = False) -> SplitEvaluation:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result."""
    model, group, train = cast(Backbone, parts.bare_model), parts.group, parts.train
    sharded = model is parts.model and group.world_size > 1
    group.share_buffers(model)
    sums: dict[str, Tensor] = {}
    rows: list[dict[str, np.ndarray]] = []
    seen: list[np.ndarray] = []
    model.eval()
    for request in _requests(parts, split):
        if not (request.real or sharded):
            continue
        arrays = fetched(split, request, train.seed, parts.task.spec.arrays)
        batch = to_device(arrays, group.device, parameter_dtype(train))
        with autocast(train, group.device):
            found, kept = parts.task.evaluate(model, batch)
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + (value if request.real else 0 * value)
        if per_sample and request.real:
            seen.append(request.indices)
            rows.append({name: value.cpu().numpy() for name, value in kept.items()})
    model.train()
    sums = _complete(parts, sums)
    arrays = _join(group.gather(rows), group.gather(seen)) if per_sample else {}
    return SplitEvaluation(parts.task.metrics(sums), len(split), arrays)


def _requests(parts: Parts, split: Split) -> Iterator[Request]:
    """This rank's forward passes, over samples of like length where training is bucketed and their lengths known."""
    train, group = parts.train, parts.group
    size = train.eval_batch_size or train.batch_size
    lengths = sample_lengths(split) if train.bucket_batches else None
    if lengths is None:
        return evaluation_requests(len(split), group.rank, group.world_size, size)
    return sorted_evaluation_requests(lengths, group.rank, group.world_size, size)


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


def _join(ranks: list[list[dict[str, np.ndarray]]], seen: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
    """All ranks' arrays, by the index of the sample each row belongs to."""
    rows = [row for rank in ranks for row in rank]
    if not rows:
        return {}
    places = np.argsort(np.concatenate([indices for rank in seen for indices in rank]), kind="stable")
    return {name: np.concatenate([row[name] for row in rows])[places] for name in rows[0]}
