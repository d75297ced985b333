"""One optimiser step: forward, backward, one agreement of all ranks, update or skip.

The gradient is that of `sum(loss_sum) / sum(weight) + sum(penalty) / samples` over every rank and micro-batch, so it
does not depend on how a global batch is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from subquad.engine import faults
from subquad.engine.feed import Micro
from subquad.engine.optim import Rates, set_rates
from subquad.engine.parts import Parts
from subquad.engine.tensors import gathered


@dataclass(frozen=True)
class StepOutcome:
    """What a step did; equal on every rank.

    Attributes:
        loss: mean task loss over the global batch.
        weight: what it is the mean over: samples, tokens, ...
        grad_norm: gradient norm before clipping.
        finite: the update was made.
        absorbed: it was not, and the fp16 scaler answers for it.
        stop: some rank was asked to stop.
        extras: means of the extra losses, where they were asked for.
    """

    loss: float
    weight: float
    grad_norm: float
    finite: bool
    absorbed: bool
    stop: bool
    extras: dict[str, float] = field(default_factory=dict)


def train_step(
    parts: Parts, micros: Sequence[Micro], samples: int, rates: Rates, *, extras: bool = False, stop: bool = False
) -> StepOutcome:
    """Make one step.

    Args:
        micros: this rank's micro-batches.
        samples: samples in the global batch.
        rates: learning rate and momentum of this update.
        extras: also return the means of the extra losses.
        stop: this rank was asked to stop; all ranks learn of it.
    """
    weight, stops = _agree(parts, micros, stop)
    parts.optimizer.zero_grad(set_to_none=True)
    loss_sum, extra_sums = _backward(parts, micros, weight, samples, extras)
    norm = _gradient_norm(parts)
    local_loss, grad_norm = float(loss_sum), float(norm)
    names = sorted(extra_sums)
    broken = 0.0 if math.isfinite(local_loss) else 1.0
    loss, broken, *means = parts.group.add([local_loss, broken, *(extra_sums[name] for name in names)])
    finite = broken == 0.0 and math.isfinite(grad_norm)
    absorbed = parts.scaler.absorbs(finite, broken == 0.0)
    if finite:
        _update(parts, norm, grad_norm, rates)
    named = {name: total / samples for name, total in zip(names, means, strict=True)}
    return StepOutcome(loss / weight, weight, grad_norm, finite, absorbed, stops, named)


def _agree(parts: Parts, micros: Sequence[Micro], stop: bool) -> tuple[float, bool]:
    own = sum(parts.task.weight(batch) for batch, real in micros if real)
    weight, stops = parts.group.add([own, float(stop)])
    return max(weight, 1e-12), stops > 0


def _backward(
    parts: Parts, micros: Sequence[Micro], weight: float, samples: int, extras: bool
) -> tuple[Tensor | float, dict[str, float]]:
    # DDP and FSDP2 average gradients over ranks; the objective is a sum over them.
    factor = parts.scaler.scale * parts.group.world_size
    total: Tensor | float = 0.0
    extra_sums: dict[str, float] = {}
    for number, (batch, real) in enumerate(micros):
        with _without_sync(parts.model, last=number == len(micros) - 1):
            with parts.autocast():
                output = parts.model(batch)
                loss_sum, _ = parts.task.loss(output.outputs, batch)
            if faults.point("loss"):
                loss_sum = loss_sum * math.nan
            objective = loss_sum / weight
            if output.penalty is not None:
                objective = objective + output.penalty.sum() / samples
            (objective if real and factor == 1.0 else objective * (factor if real else 0.0)).backward()
        if real:
            total = total + loss_sum.detach()
        for name, values in output.losses.items() if extras else ():
            extra_sums[name] = extra_sums.get(name, 0.0) + (float(values.detach().sum()) if real else 0.0)
    return total, extra_sums


def _without_sync(model: nn.Module, last: bool) -> AbstractContextManager[object]:
    """The context of a micro-batch's backward pass: gradients travel with the last one only."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)  # type: ignore[operator]
    return nullcontext()


def _gradient_norm(parts: Parts) -> Tensor:
    gradients = [one.grad for one in parts.parameters if one.grad is not None]
    if parts.scaler.scale != 1.0:
        for gradient in gradients:
            gradient.mul_(1.0 / parts.scaler.scale)
    return gathered(get_total_norm(gradients, foreach=True))


def _update(parts: Parts, norm: Tensor, grad_norm: float, rates: Rates) -> None:
    limit = parts.train.clip_norm
    # Below the limit clipping multiplies by exactly 1.
    if limit is not None and grad_norm + 1e-6 > limit:
        clip_grads_with_norm_(parts.parameters, limit, norm, foreach=True)
    set_rates(parts.optimizer, rates)
    parts.optimizer.step()
