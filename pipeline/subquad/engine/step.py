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
    bad = tuple(index for micro in micros for index in micro.bad)
    own = sum(parts.task.weight(micro.batch) for micro in micros if micro.real)
    agreed = _over_ranks(parts, [own, float(stop), float(len(bad))])
    for parameter in parts.parameters:  # the optimiser's own call takes as long as a small layer
        parameter.grad = None
    loss, extra_sums = _backward(parts, micros, agreed[0], samples, extras)
    norm = _gradient_norm(parts)
    names = tuple(sorted(extra_sums))
    found = _over_ranks(parts, [loss, *(extra_sums[name] for name in names)])
    absorbed = _update(parts, found[0], norm, rates)
    return Step((*found, *agreed, norm), names, samples, bad, absorbed)


def read_step(step: Step) -> StepOutcome:
    """What a step found; waits for the device."""
    loss, *sums, weight, stops, bad, norm = map(float, step.numbers)
    weight = max(weight, _LEAST_WEIGHT)
    extras = {name: total / step.samples for name, total in zip(step.names, sums, strict=True)}
    finite = math.isfinite(loss + norm)
    return StepOutcome(
        loss / weight, weight, norm, finite, step.absorbed, stops > 0, int(bad), extras
    )


def _over_ranks(parts: Parts, values: Sequence[Any]) -> Sequence[Any]:
    """The sum of each number or tensor () over the ranks; of several ranks float64 tensors ()."""
    group = parts.group
    if group.world_size == 1:
        return values
    placed = [
        value.double()
        if isinstance(value, Tensor)
        else torch.full((), value, dtype=torch.float64, device=group.device)  # a copy would wait
        for value in values
    ]
    return group.add_tensors({"": torch.stack(placed)})[""].unbind()


def _backward(
    parts: Parts, micros: Sequence[Micro], weight: float | Tensor, samples: int, extras: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of this rank's losses, and those of its extra losses."""
    # DDP and FSDP2 average gradients over ranks; the objective is a sum over them.
    factor = parts.scaler.scale * parts.group.world_size
    losses: list[Tensor] = []
    extra_sums: dict[str, Tensor] = {}
    for number, (batch, real, _) in enumerate(micros):
        share = factor if real else 0.0
        is_last = number == len(micros) - 1
        with nullcontext() if len(micros) == 1 else _without_sync(parts.model, last=is_last):
            with parts.autocast():
                output = parts.model(batch)
                loss_sum, _ = parts.task.loss(output.outputs, batch)
            if faults.point("loss"):
                loss_sum = loss_sum * math.nan
            ends = [loss_sum]
            # Factors go in as gradients: a product would be two more operations of a step.
            factors = [_shared(share, weight, loss_sum)]
            if output.penalty is not None and output.penalty.requires_grad:
                ends.append(output.penalty)
                factors.append(torch.full_like(output.penalty, share / samples))
            torch.autograd.backward(ends, factors)
        losses.append(loss_sum.detach() if real else torch.zeros_like(loss_sum))
        for name, values in output.losses.items() if extras else ():
            own = values.detach().sum() if real else values.new_zeros(())
            extra_sums[name] = extra_sums.get(name, 0.0) + own
    return sum(losses[1:], losses[0]), extra_sums


def _shared(share: float, weight: float | Tensor, loss: Tensor) -> Tensor:
    """A rank's share over the weight of all ranks, like the loss whose gradient it is."""
    if isinstance(weight, Tensor):
        return (share / weight.double().clamp_min(_LEAST_WEIGHT)).to(loss.dtype)
    # torch divides by the reciprocal too, so both have the same bits
    return torch.full_like(loss, share * (1.0 / max(weight, _LEAST_WEIGHT)))


def _without_sync(model: nn.Module, last: bool) -> AbstractContextManager[object]:
    """The context of a micro-batch's backward pass: gradients travel with the last one only."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)  # type: ignore[operator]
    return nullcontext()


def _gradient_norm(parts: Parts) -> Tensor:
    gradients = [weight.grad for weight in parts.parameters if weight.grad is not None]
    if parts.scaler.scale != 1.0:
        for gradient in gradients:
            gradient.mul_(1.0 / parts.scaler.scale)
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
    if parts.train.clip_norm is not None:  # below the limit clipping multiplies by exactly 1
        clip_grads_with_norm_(parts.parameters, parts.train.clip_norm, norm, foreach=True)
    set_rates(optimizer, rates)
    if len(parts.updated) < len(parts.parameters):
        begin_momentum(optimizer)
        named = trained_parameters(optimizer)
        parts.updated.update(name for name, parameter in named if parameter.grad is not None)
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
    on_device = UNREAD.get(parts.group.device.type, 1) and parts.optimizer.defaults.get("fused")
    return parts.scaler.enabled or not on_device
