"""One optimiser step: forward, backward, one agreement of all ranks, update or skip.

The gradient is that of `sum(loss_sum) / sum(weight) + sum(penalty) / samples` over every rank and
micro-batch, so it does not depend on how a global batch is cut. What a step found stays on the
device until `read_step`, and a step that is not finite is skipped there. Only the CPU, fp16's loss
scaling and optimisers that torch has no fused form of wait for each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from subquad.engine import faults
from subquad.engine.feed import Micro
from subquad.engine.optim import Rates, begin_momentum, set_rates
from subquad.engine.parts import Parts
from subquad.engine.tensors import gathered, trained_parameters

UNREAD = {"cpu": 0}
"""Steps that may be unread while the next one is made, by kind of device; elsewhere one, so that an
accelerator never waits for this process.
"""
_LEAST_WEIGHT = 1e-12


class StepOutcome(NamedTuple):
    """What a step did; equal on every rank.

    Attributes:
        loss: mean task loss over the global batch.
        weight: what it is the mean over: samples, tokens, ...
        grad_norm: gradient norm before clipping.
        finite: the update was made.
        absorbed: it was not, and the fp16 scaler answers for it.
        stop: some rank was asked to stop.
        bad: samples of the global batch that could not be read.
        extras: means of the extra losses, where they were asked for.
    """

    loss: float
    weight: float
    grad_norm: float
    finite: bool
    absorbed: bool
    stop: bool
    bad: int
    extras: dict[str, float]

    def logged(self, lr: float) -> dict[str, float]:
        """What the log has of it."""
        return {"loss": self.loss, "grad_norm": self.grad_norm, "lr": lr, **self.extras}


class Step(NamedTuple):
    """A step that was made, or is still being made on the device.

    Attributes:
        numbers: what it found: loss sum, sums of extra losses, weight, ranks that were asked to
            stop, unreadable samples, gradient norm. Tensors () are still on the device.
        names: of the extra losses.
        samples: in the global batch.
        bad: indices of this rank's samples that could not be read.
        absorbed: the fp16 scaler answers for it.
    """

    numbers: tuple[float | Tensor, ...]
    names: tuple[str, ...]
    samples: int
    bad: tuple[int, ...]
    absorbed: bool


def train_step(
    parts: Parts,
    micros: Sequence[Micro],
    samples: int,
    rates: Rates,
    *,
    extras: bool = False,
    stop: bool = False,
) -> Step:
    """Make one step.

    Args:
        micros: this rank's micro-batches.
        samples: samples in the global batch.
        rates: learning rate and momentum of this update.
        extras: also find the means of the extra losses.
        stop: this rank was asked to stop; all ranks learn of it.
    """
    bad = tuple(chain.from_iterable(micro.bad for micro in micros))
    real = [micro.batch for micro in micros if micro.real]
    agreed = _over_ranks(parts, [sum(map(parts.task.weight, real)), float(stop), float(len(bad))])
    weight = agreed[0]
    for parameter in parts.parameters:  # the optimiser's own call takes as long as a small layer
        parameter.grad = None
    own_loss, own_extras = _backward(parts, micros, weight, samples, extras)
    norm = _gradient_norm(parts)
    names = tuple(sorted(own_extras))
    found = _over_ranks(parts, [own_loss, *map(own_extras.__getitem__, names)])
    return Step(
        numbers=(*found, *agreed, norm),
        names=names,
        samples=samples,
        bad=bad,
        absorbed=_update(parts, found[0], norm, rates),
    )


def read_step(step: Step) -> StepOutcome:
    """What a step found; waits for the device."""
    loss, *extra_sums, weight, stops, bad, norm = map(float, step.numbers)
    weight = max(weight, _LEAST_WEIGHT)
    means = [extra_sum / step.samples for extra_sum in extra_sums]
    return StepOutcome(
        loss=loss / weight,
        weight=weight,
        grad_norm=norm,
        finite=math.isfinite(loss + norm),
        absorbed=step.absorbed,
        stop=stops > 0,
        bad=int(bad),
        extras=dict(zip(step.names, means, strict=True)),
    )


def _over_ranks(parts: Parts, values: Sequence[Any]) -> Sequence[Any]:
    """The sum of each number or tensor () over the ranks; of several ranks float64 tensors ()."""
    group = parts.group
    if group.world_size == 1:
        return values
    placed = []
    for value in values:
        if isinstance(value, Tensor):
            number = value.double()
        else:  # a copy would wait
            number = torch.full((), value, dtype=torch.float64, device=group.device)
        placed.append(number)
    return group.add(torch.stack(placed)).unbind()


def _backward(
    parts: Parts, micros: Sequence[Micro], weight: float | Tensor, samples: int, extras: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of this rank's losses, and those of its extra losses."""
    # DDP and FSDP2 average gradients over ranks; the objective is a sum over them.
    factor = parts.scaler.scale * parts.group.world_size
    losses: list[Tensor] = []
    extra_sums: dict[str, Tensor] = {}
    for number, (batch, real, _) in enumerate(micros, 1):
        share = factor if real else 0.0
        with _syncing(parts.model, number, len(micros)):
            with parts.autocast():
                output = parts.model(batch)
                loss_sum, _ = parts.task.loss(output.outputs, batch)
            if faults.point("loss"):
                loss_sum = loss_sum * math.nan
            ends = [loss_sum]
            # Factors go in as gradients: a product would be two more operations of a step.
            factors = [_shared(share, weight, loss_sum)]
            penalty = output.penalty
            if penalty is not None and penalty.requires_grad:
                ends.append(penalty)
                factors.append(torch.full_like(penalty, share / samples))
            torch.autograd.backward(ends, factors)
        losses.append(loss_sum.detach() if real else torch.zeros_like(loss_sum))
        if not extras:
            continue
        for name, values in output.losses.items():
            own = values.detach().sum() if real else values.new_zeros(())
            extra_sums[name] = extra_sums.get(name, 0.0) + own
    first, *others = losses
    return sum(others, first), extra_sums


def _shared(share: float, weight: float | Tensor, loss: Tensor) -> Tensor:
    """A rank's share over the weight of all ranks, like the loss whose gradient it is."""
    if isinstance(weight, Tensor):
        return (share / weight.double().clamp_min(_LEAST_WEIGHT)).to(loss.dtype)
    # torch divides by the reciprocal too, so both have the same bits
    return torch.full_like(loss, share * (1.0 / max(weight, _LEAST_WEIGHT)))


def _syncing(model: nn.Module, number: int, count: int) -> AbstractContextManager[object]:
    """The context of a micro-batch's backward pass: gradients travel with the last one only."""
    if count == 1:
        return nullcontext()
    is_last = number == count
    if isinstance(model, DistributedDataParallel) and not is_last:
        return model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
    return nullcontext()


def _gradient_norm(parts: Parts) -> Tensor:
    gradients = [weight.grad for weight in parts.parameters if weight.grad is not None]
    scale = parts.scaler.scale
    if scale != 1.0:
        for gradient in gradients:
            gradient.mul_(1.0 / scale)
    return gathered(get_total_norm(gradients, foreach=True))


def _update(parts: Parts, loss: Tensor, norm: Tensor, rates: Rates) -> bool:
    """Clip and update where loss and gradient norm are finite; True where the fp16 scaler answers
    for a skipped step.

    Args:
        loss: the sum over all ranks, a () tensor; not finite where that of one is not.
        norm: the gradient norm, a () tensor.
    """
    optimizer = parts.optimizer
    if _waits(parts):
        is_finite = math.isfinite(float(loss) + float(norm))
        absorbed = parts.scaler.absorbs(is_finite, math.isfinite(loss))
        if not is_finite:
            return absorbed
    else:  # a fused optimiser leaves weights and state as they are where this is 1
        is_spoilt = ~_is_finite(loss, norm)
        optimizer.found_inf = is_spoilt.float()  # pyright: ignore[reportAttributeAccessIssue]
    limit = parts.train.clip_norm
    if limit is not None:  # below the limit clipping multiplies by exactly 1
        clip_grads_with_norm_(parts.parameters, limit, norm, foreach=True)
    set_rates(optimizer, rates)
    if len(parts.updated) < len(parts.parameters):
        begin_momentum(optimizer)
        for name, parameter in trained_parameters(optimizer):
            if parameter.grad is not None:
                parts.updated.add(name)
    optimizer.step()
    if parts.average is not None:
        parts.average.update(_is_finite(loss, norm))
    return False


def _is_finite(loss: Tensor, norm: Tensor) -> Tensor:
    """A bool () on the device."""
    both = loss.double() + norm
    return both - both == 0.0  # infinity less infinity is NaN, which differs from 0


def _waits(parts: Parts) -> bool:
    """Whether a step is read before its update."""
    if parts.scaler.enabled or UNREAD.get(parts.group.device.type) == 0:
        return True
    return not parts.optimizer.defaults.get("fused")
