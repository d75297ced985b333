"""Metrics of a split, from exact sums over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from subquad.data import Split
from subquad.engine.feed import evaluation_batches
from subquad.engine.group import Group
from subquad.engine.parts import ModelParts
from subquad.errors import DataError
from subquad.nn import Backbone

_Answered = tuple[np.ndarray, dict[str, np.ndarray]]
"""Indices of a batch's samples, and what was kept of each, by name."""


class EvaluationStopped(Exception):
    """A final evaluation was asked to stop; its run begins it anew when it goes on."""


@torch.no_grad()
def evaluate(
    parts: ModelParts,
    split: Split,
    *,
    per_sample: bool = False,
    stop_requested: Callable[[], int] = lambda: 0,
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Evaluate the model as it stands; every rank must call it, every rank gets the result.

    Args:
        parts: the model, and what it is evaluated with.
        split: what it is evaluated on.
        per_sample: it is the final evaluation.
        stop_requested: looked at between batches.

    Returns:
        metrics by name; and, of a final evaluation, per-sample values in the split's order.

    Raises:
        EvaluationStopped: on every rank, where one was asked to stop.
    """
    group = parts.group
    sums: dict[str, Tensor] = {}
    batches: list[_Answered] = []
    bad: list[int] = []
    stopped = False
    with _evaluating(parts) as model:
        for (batch, real, unreadable), indices in evaluation_batches(parts, split):
            stopped = group.agree(model, stop_requested() > 0)
            if stopped:
                break
            with parts.autocast():
                found, answers = parts.task.evaluate(model, batch, final=per_sample)
            if not real:
                continue
            for name, value in found.items():
                sums[name] = value + sums.get(name, 0)
            bad += unreadable
            if per_sample:
                rows = {name: values.cpu().numpy() for name, values in answers.items()}
                batches.append((indices, rows))
    if any(group.gather(stopped)):  # before other collective calls
        raise EvaluationStopped
    metrics = dict(parts.task.metrics(_complete(group, sums)))
    bad = group.join(bad)
    if bad:
        check_bad(split, bad, parts.train.max_bad, len(split))
        metrics["bad_samples"] = float(len(bad))
    if not per_sample:
        return metrics, {}
    arrays = _in_order(group.join(batches))
    if arrays:
        metrics = {**parts.task.rescore(arrays), **metrics}
    return metrics, arrays


@contextmanager
def _evaluating(parts: ModelParts) -> Iterator[Backbone]:
    """The model in evaluation mode, with the same buffers on every rank."""
    model = parts.bare_model
    parts.group.share_buffers(model)
    was_training = model.training
    yield model.eval()
    model.train(was_training)
    parts.group.reshard(model)


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
    count = len(bad) + earlier
    if count > limit * samples:
        named = ", ".join(map(split.name, sorted(bad)[:3]))
        raise DataError(
            f"{count:,} of {samples:,} samples cannot be read, the last {named}; repair them, or "
            f"raise train.max_bad ({limit:g})"
        )


def _complete(group: Group, sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add over ranks, also where a rank had no sample and so does not know the shapes."""
    if group.world_size == 1:
        return sums
    own = {name: (value.shape, value.dtype) for name, value in sums.items()}
    kinds = next(filter(None, group.gather(own)))
    complete = {}
    for name, (shape, dtype) in kinds.items():
        own_sum = sums.get(name, torch.zeros(shape, dtype=dtype, device=group.device))
        complete[name] = group.add(own_sum)
    return complete


def _in_order(batches: list[_Answered]) -> dict[str, Tensor]:
    """Values of all batches, by the index of the sample each row belongs to."""
    if not batches:
        return {}
    indices = np.concatenate([indices for indices, _ in batches])
    order = np.argsort(indices, kind="stable")
    _, names = batches[0]
    values = {}
    for name in names:
        rows = np.concatenate([arrays[name] for _, arrays in batches])
        values[name] = torch.from_numpy(np.ascontiguousarray(rows[order]))
    return values
