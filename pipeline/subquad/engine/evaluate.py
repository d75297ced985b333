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
from subquad.errors import DataError


class EvaluationStopped(Exception):
    """A final evaluation was asked to stop; its run begins it anew when it goes on."""


@torch.no_grad()
def evaluate(
    parts: ModelParts,
    split: Split,
    *,
    per_sample: bool = False,
    stop_requested: Callable[[], int] = lambda: 0,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result.

    Args:
        parts: the model, and what it is evaluated with.
        split: what it is evaluated on.
        per_sample: it is the final evaluation.
        stop_requested: looked at between batches of a final evaluation; not where a sharded model's
            forward passes are collective calls, which all ranks must make.

    Returns:
        metrics by name; and, of a final evaluation, per-sample arrays in the split's order.

    Raises:
        EvaluationStopped: on every rank, where one was asked to stop.
    """
    model = parts.bare_model
    group = parts.group
    group.share_buffers(model)
    sums: dict[str, Tensor] = {}
    rows: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    was_training = model.training
    model.eval()
    stopped = False
    bad: list[int] = []
    for (batch, real, unreadable), indices in evaluation_batches(parts, split):
        if stopped := stop_requested() > 0:
            break
        with parts.autocast():
            found, kept = parts.task.evaluate(model, batch, final=per_sample)
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + (value if real else 0 * value)
        bad += unreadable
        if per_sample and real:
            rows.append((indices, {name: value.cpu().numpy() for name, value in kept.items()}))
    model.train(was_training)
    group.reshard(model)
    if per_sample and any(group.gather(stopped)):  # before other collective calls
        raise EvaluationStopped
    metrics = dict(parts.task.metrics(_complete(group, sums)))
    if everyone := [index for own in group.gather(bad) for index in own]:
        check_bad(split, everyone, parts.train.max_bad, len(split))
        metrics["bad_samples"] = float(len(everyone))
    arrays = _join(group.gather(rows)) if per_sample else {}
    if arrays:
        answers = {name: torch.from_numpy(rows) for name, rows in arrays.items()}
        metrics = {**parts.task.rescore(answers), **metrics}
    return metrics, arrays


def check_bad(split: Split, bad: list[int], limit: float, samples: int, earlier: int = 0) -> None:
    """Stop where too many samples cannot be read.

    Args:
        split: whose samples they are.
        bad: those found now, not empty.
        limit: the share of `samples` that may be bad.
        samples: what was read, at least a whole split.
        earlier: bad ones found before.

    Raises:
        DataError: there are more.
    """
    if len(bad) + earlier > limit * samples:
        named = ", ".join(map(split.name, sorted(bad)[:3]))
        raise DataError(
            f"{len(bad) + earlier:,} of {samples:,} samples cannot be read, the "
            f"last {named}; repair them, or raise "
            f"train.max_bad ({limit:g})"
        )


def _complete(group: Group, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add over ranks, also where a rank had no sample and so does not know the shapes."""
    if group.world_size == 1:
        return sums
    known = group.gather({name: (tuple(value.shape), value.dtype) for name, value in sums.items()})
    shapes = next(filter(None, known))
    own = {
        name: sums.get(name, torch.zeros(shape, dtype=dtype, device=group.device))
        for name, (shape, dtype) in shapes.items()
    }
    return group.add_tensors(own)


def _join(
    ranks: list[list[tuple[np.ndarray, dict[str, np.ndarray]]]],
) -> dict[str, np.ndarray]:
    """All ranks' arrays, by the index of the sample each row belongs to."""
    batches = [batch for rank in ranks for batch in rank]
    if not batches:
        return {}
    order = np.argsort(np.concatenate([indices for indices, _ in batches]), kind="stable")
    joined = {}
    for name in batches[0][1]:
        values = np.concatenate([rows[name] for _, rows in batches])
        joined[name] = values[order]
    return joined
