"""One optimiser step: forward, backward, one agreement of all ranks, update or skip.

The gradient is that of `sum(loss_sum) / sum(weight) + sum(penalty) / samples` over every rank and micro-batch, so it
does not depend on how a global batch is cut. With `train.sync_every` above 1 nothing here waits for the device: what a
step found stays there until `read_steps`, and a step that is not finite is skipped there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from subquad.engine import faults
from subquad.engine.feed import Micro
from subquad.engine.optim import Rates, begin_momentum, set_rates
from subquad.engine.parts import Parts
from subquad.engine.tensors import gathered, trained_parameters


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


Number = float | Tensor
"""A float where every step waits for the device, else a () tensor that is on it."""


class Step(NamedTuple):
    """A step that was made, or is still being made on the device.

    Attributes:
        numbers: what it found: loss sum, ranks without a finite loss, sums of extra losses, weight, ranks that were
            asked to stop, unreadable samples, gradient norm.
        names: of the extra losses.
        samples: in the global batch.
        bad: indices of this rank's samples that could not be read.
        absorbed: the fp16 scaler answers for it.
    """

    numbers: Sequence[Number]
    names: tuple[str, ...]
    samples: int
    bad: tuple[int, ...]
    absorbed: bool


def train_step(
    parts: Parts, micros: Sequence[Micro], samples: int, rates: Rates, *, extras: bool = False, stop: bool = False
) -> Step:
    """Make one step.

    Args:
        micros: this rank's micro-batches.
        samples: samples in the global batch.
        rates: learning rate and momentum of this update.
        extras: also find the means of the extra losses.
        stop: this rank was asked to stop; all ranks learn of it.
    """
    bad = tuple(one for micro in micros for one in micro.bad)
    own = sum(parts.task.weight(micro.batch) for micro in micros if micro.real)
    weight, *agreed = _over_ranks(parts, [own, float(stop), float(len(bad))])
    weight = weight.clamp_min(1e-12) if isinstance(weight, Tensor) else max(weight, 1e-12)
    parts.optimizer.zero_grad(set_to_none=True)
    loss_sum, extra_sums = _backward(parts, micros, weight, samples, extras)
    length = _gradient_norm(parts)
    norm = _number(parts, length)
    names = tuple(sorted(extra_sums))
    loss = _number(parts, loss_sum)
    found = _over_ranks(parts, [loss, 1.0 - 1.0 * _is_finite(loss), *(extra_sums[name] for name in names)])
    absorbed = _update(parts, found[1] == 0.0, norm, length, rates)
    return Step([*found, weight, *agreed, norm], names, samples, bad, absorbed)


def read_steps(steps: Sequence[Step]) -> list[StepOutcome]:
    """What some steps found, in their order; waits for the device."""
    numbers = [one for step in steps for one in step.numbers]
    tensors = [one.double() for one in numbers if isinstance(one, Tensor)]
    flat = iter(torch.stack(tensors).tolist() if tensors else map(float, numbers))
    return [_outcome(step, [next(flat) for _ in step.numbers]) for step in steps]


def _outcome(step: Step, numbers: list[float]) -> StepOutcome:
    loss, broken, *sums, weight, stops, bad, norm = numbers
    extras = {name: total / step.samples for name, total in zip(step.names, sums, strict=True)}
    finite = broken == 0.0 and math.isfinite(norm)
    return StepOutcome(loss / weight, weight, norm, finite, step.absorbed, stops > 0, int(bad), extras)


def _number(parts: Parts, value: Number) -> Number:
    return float(value) if parts.train.sync_every == 1 else value


def _is_finite(value: Number) -> bool | Tensor:
    return value.isfinite() if isinstance(value, Tensor) else math.isfinite(value)


def _over_ranks(parts: Parts, values: Sequence[Number]) -> list[Number]:
    """The sum of each value over the ranks."""
    if parts.train.sync_every == 1:
        return [*parts.group.add([float(one) for one in values])]
    device = parts.group.device  # filled, not copied there: a copy would wait
    placed = [one if isinstance(one, Tensor) else torch.full((), one, device=device) for one in values]
    return [*parts.group.add_tensors({"": torch.stack([one.double() for one in placed])})[""]]


def _backward(
    parts: Parts, micros: Sequence[Micro], weight: Number, samples: int, extras: bool
) -> tuple[Number, dict[str, Number]]:
    """The sum of this rank's losses, and those of its extra losses."""
    # DDP and FSDP2 average gradients over ranks; the objective is a sum over them.
    factor = parts.scaler.scale * parts.group.world_size
    total: Number = 0.0
    extra_sums: dict[str, Number] = {}
    for number, (batch, real, _) in enumerate(micros):
        share = factor if real else 0.0
        with nullcontext() if len(micros) == 1 else _without_sync(parts.model, last=number == len(micros) - 1):
            with parts.autocast():
                output = parts.model(batch)
                loss_sum, _ = parts.task.loss(output.outputs, batch)
            if faults.point("loss"):
                loss_sum = loss_sum * math.nan
            ends = [(loss_sum, share / weight)]
            if output.penalty is not None and output.penalty.requires_grad:
                ends.append((output.penalty, share / samples))
            # Factors go in as gradients: a product would be two more operations of a step.
            torch.autograd.backward([end for end, _ in ends], [_full_like(*one) for one in ends])
        if real:
            total = loss_sum.detach() if number == 0 else total + loss_sum.detach()
        for name, values in output.losses.items() if extras else ():
            extra_sums[name] = extra_sums.get(name, 0.0) + (values.detach().sum() if real else 0.0)
    return total, extra_sums


def _full_like(tensor: Tensor, value: Number) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(tensor.dtype).expand(tensor.shape)
    return torch.full_like(tensor, value, requires_grad=False)


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


def _update(parts: Parts, finite_loss: bool | Tensor, norm: Number, length: Tensor, rates: Rates) -> bool:
    """Clip and update where loss and gradient norm are finite; True where the fp16 scaler answers for a skipped step.

    Args:
        finite_loss: every rank's loss is.
        norm, length: the gradient norm, read where each step waits, and as a () tensor.
    """
    finite, optimizer, limit = finite_loss & _is_finite(norm), parts.optimizer, parts.train.clip_norm
    if isinstance(finite, Tensor):  # a fused optimiser leaves weights and state as they are where this is 1
        optimizer.found_inf = 1.0 - finite.float()  # pyright: ignore[reportAttributeAccessIssue]
    else:
        absorbed = parts.scaler.absorbs(finite, bool(finite_loss))
        if not finite:
            return absorbed
    # Below the limit clipping multiplies by exactly 1.
    if limit is not None and (isinstance(norm, Tensor) or norm + 1e-6 > limit):
        clip_grads_with_norm_(parts.parameters, limit, length, foreach=True)
    set_rates(optimizer, rates)
    if len(parts.updated) < len(parts.parameters):
        begin_momentum(optimizer)
        named = trained_parameters(optimizer)
        parts.updated.update(name for name, parameter in named if parameter.grad is not None)
    optimizer.step()
    if parts.average is not None:
        parts.average.update(finite)
    return False
