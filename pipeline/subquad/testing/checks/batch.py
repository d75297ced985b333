"""A sample's outputs, extra losses and gradients have nothing to do with the other samples of the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput
from subquad.testing.calls import call, gradients, outputs, padded, weights
from subquad.testing.check import Check, Finding
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import Subject

LENGTH = 17
MODES = {"evaluation": False, "training": True}


def batch_outputs(subject: Subject) -> Finding:
    """Other samples, and other masks of theirs, at fixed shape; in evaluation and in training mode."""
    meter = Meter(subject.facts.leak)
    for mode, training in MODES.items():
        first, second = _two_batches(subject, training)
        for own in (0, 2):
            meter.compare(f"output of sample {own} in {mode}, other samples changed", second.out[own], first.out[own])
    return meter.finding()


def batch_losses(subject: Subject) -> Finding:
    """As `batch_outputs`, for the extra losses."""
    meter = Meter(subject.facts.leak, "the largest loss")
    for mode, training in MODES.items():
        first, second = _two_batches(subject, training)
        for name, loss in first.losses.items():
            if loss.dim():
                label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                meter.compare(label, second.losses[name][0], loss[0], scale=loss)
    return meter.finding()


def batch_gradients(subject: Subject) -> Finding:
    """Outputs and extra losses of one sample send no gradient into the others."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    length = subject.at_most(LENGTH)
    for mode, training in MODES.items():
        mixer = subject.build().train(training)
        x = subject.tokens(3, length).requires_grad_()
        result = call(mixer, x, _keep(length))
        total = (result.out[1] * weights(result.out[1])).sum() + sum(
            loss[1] for loss in result.losses.values() if loss.dim()
        )
        (grad,) = gradients(total, [x])
        meter.zero(f"gradient of sample 1 by sample 0 in {mode}", grad[0], scale=grad)
        meter.zero(f"gradient of sample 1 by sample 2 in {mode}", grad[2], scale=grad)
    return meter.finding()


def batch_size(subject: Subject) -> Finding:
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


def _two_batches(subject: Subject, training: bool) -> tuple[MixerOutput, MixerOutput]:
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


def no_losses(subject: Subject) -> str:
    """Why a check of extra losses does not apply."""
    mixer = subject.build().train()
    with torch.no_grad():
        found = call(mixer, subject.tokens(2, subject.at_most(LENGTH))).losses
    return "" if found or mixer.loss_weights else "returns no extra loss"


CHECKS = (
    Check(name="batch-outputs", shows="outputs do not depend on other samples, also in training", run=batch_outputs),
    Check(
        name="batch-losses",
        shows="a sample's extra loss does not depend on other samples",
        run=batch_losses,
        excluded=no_losses,
    ),
    Check(name="batch-gradients", shows="a sample's gradient reaches no other sample", run=batch_gradients),
    Check(name="batch-size", shows="a sample gives the same alone and in a batch", run=batch_size),
)
