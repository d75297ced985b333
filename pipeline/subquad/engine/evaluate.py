"""Metrics of a split, from exact sums over all ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split
from subquad.engine.feed import evaluation_batches
from subquad.engine.group import Group
from subquad.engine.parts import ModelParts


class EvaluationStopped(Exception):
    """A final evaluation was asked to stop; its run begins it anew when it goes on."""


@torch.no_grad()
def evaluate(
    parts: ModelParts, split: Split, *, per_sample: bool = False, asked_to_stop: Callable[[], int] = lambda: 0
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result.

    Args:
        parts: the model, and what it is evaluated with.
        split: what it is evaluated on.
        per_sample: it is the final evaluation.
        asked_to_stop: looked at between batches of a final evaluation; not where a sharded model's forward passes are
            collective calls, which all ranks must make.

    Returns:
        metrics by name; and, of a final evaluation, per-sample arrays in the split's order.

    Raises:
        EvaluationStopped: on every rank, where one was asked to stop.
    """
    model, group = parts.bare_model, parts.group
    group.share_buffers(model)
    sums: dict[str, Tensor] = {}
    rows: list[dict[str, np.ndarray]] = []
    seen: list[np.ndarray] = []
    model.eval()
    stopped = False
    for batch, request in evaluation_batches(parts, split):
        if stopped := asked_to_stop() > 0:
            break
        with parts.autocast():
            found, kept = parts.task.evaluate(model, batch, final=per_sample)
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + (value if request.real else 0 * value)
        if per_sample and request.real:
            seen.append(request.indices)
            rows.append({name: value.cpu().numpy() for name, value in kept.items()})
    model.train()
    if per_sample and any(group.gather(stopped)):  # before other collective calls
        raise EvaluationStopped
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
