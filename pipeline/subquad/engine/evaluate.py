"""Metrics of a split, from exact sums over all ranks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split
from subquad.engine.feed import evaluation_batches
from subquad.engine.group import Group
from subquad.engine.parts import ModelParts


@torch.no_grad()
def evaluate(
    parts: ModelParts, split: Split, *, per_sample: bool = False
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result.

    Returns:
        metrics by name; and, where they were asked for, per-sample arrays in the split's order.
    """
    model, group = parts.bare_model, parts.group
    group.share_buffers(model)
    sums: dict[str, Tensor] = {}
    rows: list[dict[str, np.ndarray]] = []
    seen: list[np.ndarray] = []
    model.eval()
    for batch, request in evaluation_batches(parts, split):
        with parts.autocast():
            found, kept = parts.task.evaluate(model, batch, final=per_sample)
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + (value if request.real else 0 * value)
        if per_sample and request.real:
            seen.append(request.indices)
            rows.append({name: value.cpu().numpy() for name, value in kept.items()})
    model.train()
    metrics = dict(parts.task.metrics(_complete(group, sums)))
    arrays = _join(group.gather(rows), group.gather(seen)) if per_sample else {}
    more = parts.task.rescore({name: torch.from_numpy(one) for name, one in arrays.items()}) if arrays else {}
    return {**more, **metrics}, arrays


def _complete(group: Group, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add over ranks, also where a rank had no sample and so does not know the shapes."""
    if group.world_size == 1:
        return sums
    known = group.gather({name: (tuple(one.shape), one.dtype) for name, one in sums.items()})
    shapes = next(one for one in known if one)
    own = {
        name: sums.get(name, torch.zeros(shape, dtype=dtype, device=group.device))
        for name, (shape, dtype) in shapes.items()
    }
    return group.add_tensors(own)


def _join(ranks: list[list[dict[str, np.ndarray]]], seen: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
    """All ranks' arrays, by the index of the sample each row belongs to."""
    rows = [row for rank in ranks for row in rank]
    if not rows:
        return {}
    places = np.argsort(np.concatenate([indices for rank in seen for indices in rank]), kind="stable")
    return {name: np.concatenate([row[name] for row in rows])[places] for name in rows[0]}
