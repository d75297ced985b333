"""Batches: a sample's outputs, extra losses and gradients have nothing to do with the other samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput
from subquad.testing.calls import call, gradients_of, outputs, padded, random_like, trainable
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.measure import ROUNDING, Meter, finite
from subquad.testing.subject import CheckSubject

LENGTH = 17
MODES = {"evaluation": False, "training": True}


def _no_losses(subject: CheckSubject) -> str:
    """Why a check of extra losses does not apply."""
    mixer = subject.build().train()
    with torch.no_grad():
        found = call(mixer, subject.tokens(2, subject.at_most(LENGTH))).losses
    return "" if found or mixer.loss_weights else "returns no extra loss"


@shows("outputs do not depend on other samples, also in training")
def _batch_outputs(subject: CheckSubject) -> Finding:
    """Other samples, and other masks of theirs, at fixed shape; in evaluation and in training mode."""
    meter = Meter(subject.facts.leak)
    for mode, training in MODES.items():
        first, second = _two_batches(subject, training)
        for own in (0, 2):
            meter.compare(f"output of sample {own} in {mode}, other samples changed", second.out[own], first.out[own])
    return meter.finding()


@shows("a sample's extra loss does not depend on other samples", excluded=_no_losses)
def _batch_losses(subject: CheckSubject) -> Finding:
    """As `batch_outputs`, for the extra losses."""
    meter = Meter(subject.facts.leak, "the largest loss")
    for mode, training in MODES.items():
        first, second = _two_batches(subject, training)
        for name, loss in first.losses.items():
            if loss.dim():
                label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                meter.compare(label, second.losses[name][0], loss[0], scale=loss)
    return meter.finding()


@shows("a sample's gradient reaches no other sample")
def _batch_gradients(subject: CheckSubject) -> Finding:
    """Outputs and extra losses of one sample send no gradient into the others."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    length = subject.at_most(LENGTH)
    for mode, training in MODES.items():
        mixer = subject.build().train(training)
        x = subject.tokens(3, length).requires_grad_()
        result = call(mixer, x, _keep(length))
        total = (result.out[1] * random_like(result.out[1])).sum() + sum(
            loss[1] for loss in result.losses.values() if loss.dim()
        )
        (grad,) = gradients_of(total, [x])
        meter.zero(f"gradient of sample 1 by sample 0 in {mode}", grad[0], scale=grad)
        meter.zero(f"gradient of sample 1 by sample 2 in {mode}", grad[2], scale=grad)
    return meter.finding()


@shows("a sample gives the same alone and in a batch")
def _batch_size(subject: CheckSubject) -> Finding:
    """A sample alone against the same sample within a batch."""
    mixer, x, meter = subject.build(), subject.tokens(3, subject.at_most(LENGTH)), Meter(ROUNDING)
    keep = _keep(x.shape[1])
    expected = outputs(mixer, x, keep)
    for own in range(3):
        meter.compare(
            "output of a sample alone against in a batch",
            outputs(mixer, x[own : own + 1], keep[own : own + 1])[0],
            expected[own],
        )
    meter.compare("output of a batch without a mask, sample alone", outputs(mixer, x[:1]), outputs(mixer, x)[:1])
    return meter.finding()


def compare_batch(meter: Meter, mixer: nn.Module, x: Tensor) -> None:
    """Outputs of the first of three samples with the other two changed.

    Raises:
        CheckFailed: they differ.
    """
    keep = _keep(x.shape[1])
    meter.compare(
        "output of sample 0, other samples changed",
        outputs(mixer, *_changed(x, keep, (0,)))[0],
        outputs(mixer, x, keep)[0],
    )


def _two_batches(subject: CheckSubject, training: bool) -> tuple[MixerOutput, MixerOutput]:
    """Results of two batches of which only sample 1 differs; each from a new mixer, so that no state counts."""
    length = subject.at_most(LENGTH)
    x, keep = subject.tokens(3, length), _keep(length)
    with torch.no_grad():
        batches = ((x, keep), _changed(x, keep, (0, 2)))
        first, second = (call(subject.build().train(training), *batch) for batch in batches)
    return first, second


def _changed(x: Tensor, keep: Tensor, same: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Louder tokens and another mask for all samples but those in `same`."""
    mine = torch.zeros(len(x)).bool()
    mine[list(same)] = True
    return torch.where(mine[:, None, None], x, 5 * x.flip(1) + 1), torch.where(
        mine[:, None], keep, ~keep.flip(1) | keep
    )


def _keep(length: int) -> Tensor:
    return padded(length, (max(1, length - 2), max(1, length // 2), max(1, length - 5)))


@shows("extra losses are finite, differentiable, one a sample, and have weights", excluded=_no_losses)
def _losses(subject: CheckSubject) -> Finding:
    """Shape (B,), finite, with a gradient, and named in `loss_weights`, whose every name is returned."""
    length = subject.at_most(13)
    mixer, x = subject.build().train(), subject.tokens(3, length).requires_grad_()
    for keep in (None, padded(length, (length, (length + 1) // 2, 1))):
        found = call(mixer, x, keep).losses
        if odd := sorted(set(found) ^ set(mixer.loss_weights)):
            raise CheckFailed(f"losses {sorted(found)} and loss_weights {sorted(mixer.loss_weights)} differ in {odd}")
        for name, value in found.items():
            if value.shape != (3,):
                raise CheckFailed(f"loss {name!r} has the shape {tuple(value.shape)}, expected (B,) = (3,)")
            finite(f"loss {name!r}", value)
            inputs = [x, *trainable(mixer).values()]
            if not value.requires_grad or not _any(torch.autograd.grad(value.sum(), inputs, allow_unused=True)):
                raise CheckFailed(f"loss {name!r} has no gradient by tokens or weights")
    return Finding(", ".join(f"{name} x {weight:g}" for name, weight in mixer.loss_weights.items()))


def _any(grads: tuple[torch.Tensor | None, ...]) -> bool:
    return any(grad is not None and bool(grad.any()) for grad in grads)
