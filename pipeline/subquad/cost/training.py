"""What a training step costs: parameters, floating-point operations and bytes of one pass over the global batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from subquad.cost.counter import Count, OperationCounter
from subquad.nn import Batch

FEW = 2
"""Samples that are counted with, and once more with one sample more; some layers need more than one."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a training step.

    Attributes:
        parameters: trainable numbers in the model.
        flops_per_step: floating-point operations, forward and backward over the global batch; None where not known.
        bytes_per_step: bytes that these operations read and write; None where not known.
        uncounted: why it is not known: the operations that nobody can count, or what stopped the pass.
    """

    parameters: int
    flops_per_step: int | None
    bytes_per_step: int | None
    uncounted: tuple[str, ...] = ()


def step_cost(
    model: nn.Module, objective: Callable[[Batch], Tensor], example: Callable[[int], Batch], batch_size: int
) -> Cost:
    """Count the forward and backward pass over a global batch, without the optimiser's update.

    Every element-wise operation, FFT, convolution, matrix product and attention counts, see `subquad.cost.operations`.
    The passes run at full length with `FEW` samples and with one more. As samples have nothing to do with each other,
    each one adds the same, and what is computed of the weights alone comes once: so the whole batch follows. That is
    exact, but for the rounding of each n log n to a whole number and for reads of a table (embeddings, say) that a few
    samples do not read whole. How the batch is cut among ranks and into micro-batches makes no difference.

    Args:
        model: on the device where it is to be counted; its `.grad`s are None afterwards.
        objective: the loss of a batch, a scalar, by a pass through the model.
        example: makes a batch of so many samples, of full length.
        batch_size: samples of the global batch.
    """
    parameters = sum(one.numel() for one in model.parameters() if one.requires_grad)
    try:
        few = _pass(model, objective, example(min(FEW, batch_size)))
        more = few if batch_size <= FEW else _pass(model, objective, example(FEW + 1))
    except Exception as error:  # a plugin's: a kernel that needs a GPU, a layer that needs more samples, ...
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Cost(parameters=parameters, flops_per_step=None, bytes_per_step=None, uncounted=(why,))
    if unknown := (few + more).unknown:
        return Cost(parameters=parameters, flops_per_step=None, bytes_per_step=None, uncounted=unknown)
    extra = max(batch_size - FEW, 0)
    flops, moved = few.flops + extra * (more.flops - few.flops), few.moved + extra * (more.moved - few.moved)
    return Cost(parameters=parameters, flops_per_step=flops, bytes_per_step=moved)


def _pass(model: nn.Module, objective: Callable[[Batch], Tensor], batch: Batch) -> Count:
    counter = OperationCounter()
    with counter.counting():
        objective(batch).backward()
    model.zero_grad(set_to_none=True)
    return counter.count()
