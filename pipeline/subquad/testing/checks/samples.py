"""Samples of a batch keep apart: outputs, gradients and extra losses; and layers with their
carry keep the properties of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from subquad.errors import SubquadError
from subquad.nn import MixerOutput, TokenMixer
from subquad.registry.faults import cause
from subquad.testing.calls import (
    afresh,
    call,
    gradients,
    modes,
    outputs,
    padded,
    settled_modes,
    trainable,
    weighted,
)
from subquad.testing.cases import compares, leak_of, shows
from subquad.testing.checks import influence
from subquad.testing.checks.gradients import measured_gradients
from subquad.testing.checks.shapes import passes
from subquad.testing.meter import CheckFailed, Comparisons, Finding, finite
from subquad.testing.subject import FAR, CheckSubject

LENGTH = influence.LENGTH
MANY = 33
"""Samples of a large batch."""


@compares("outputs do not depend on other samples, also in training", leak_of)
def _batch_outputs(subject: CheckSubject) -> Comparisons:
    """Other samples, and other masks of theirs, at fixed shape; in evaluation and in training
    mode.
    """
    for mode, first, second in _two_batches(subject):
        for own in range(0, len(first.out), 2):
            label = f"output of sample {own} in {mode}, other samples changed"
            yield label, second.out[own], first.out[own]


def _no_losses(subject: CheckSubject) -> str:
    mixer = subject.build().train()
    with torch.no_grad():
        found = call(mixer, subject.pair(LENGTH)[0]).losses
    return "" if found or mixer.loss_weights else "returns no extra loss"


@shows(
    "extra losses are finite, differentiable, one a sample or one in all, and have weights",
    excluded=_no_losses,
)
def _losses(subject: CheckSubject) -> Finding:
    """Shape (B,), or () for the batch, finite, with a gradient, and named in `loss_weights`, whose
    every name is returned.
    """
    length = subject.at_most(LENGTH)
    mixer, x = subject.build().train(), subject.tokens(3, length).requires_grad_()
    weights = mixer.loss_weights
    for keep in (None, padded(length, (length, (length + 1) // 2, 1))):
        losses = call(mixer, x, keep).losses
        if odd := sorted(set(losses) ^ set(weights)):
            raise CheckFailed(
                f"losses {sorted(losses)} and loss_weights {sorted(weights)} differ in {odd}"
            )
        for name, value in losses.items():
            _check_loss(f"loss {name!r}", value, {"tokens": x, **trainable(mixer)})
    return Finding(", ".join(f"{name} x {weight:g}" for name, weight in weights.items()))


def _check_loss(label: str, value: Tensor, inputs: dict[str, Tensor]) -> None:
    if value.shape not in ((3,), ()):
        raise CheckFailed(f"{label} has the shape {tuple(value.shape)}, expected (B,) = (3,) or ()")
    finite(label, value)
    if not any(grad.any() for grad in gradients(value.sum(), inputs).values()):
        raise CheckFailed(f"{label} has no gradient by tokens or weights")


@compares(
    "a sample's extra loss does not depend on other samples",
    leak_of,
    "the largest loss",
    excluded=_no_losses,
)
def _batch_losses(subject: CheckSubject) -> Comparisons:
    for mode, first, second in _two_batches(subject):
        for name, loss in first.losses.items():
            if loss.dim():
                label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                yield label, second.losses[name][0], loss[0], loss


@compares("a sample's gradient reaches no other sample", leak_of, "the largest gradient")
def _batch_gradients(subject: CheckSubject) -> Comparisons:
    """In training."""
    for mixer, x, keep in _batches(subject):
        tokens = x.clone().requires_grad_()
        result = call(mixer.train(), tokens, keep)
        losses = sum(loss[1] for loss in result.losses.values() if loss.dim())
        grad = gradients(weighted(result.out[1]).sum() + losses, {"tokens": tokens})["tokens"]
        for other in (0, 2):
            label = f"gradient of sample 1 by sample {other} of {x.shape[1]} tokens"
            yield label, grad[other], None, grad


@compares("a sample gives the same alone and in a batch")
def _batch_size(subject: CheckSubject) -> Comparisons:
    for mixer, x, keep in _batches(subject):
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, keep, dropout=False)
            for own in range(0, len(x) if x.shape[1] < FAR else 1, len(x) // 3):
                got = outputs(mixer, x[own : own + 1], keep[own : own + 1], dropout=False)[0]
                label = f"output of a sample alone against in a batch in {mode}"
                yield label, got, expected[own]
            if x.shape[1] < FAR:
                got, expected = (outputs(mixer, tokens, dropout=False) for tokens in (x[:1], x))
                label = f"output of a batch without a mask in {mode}, sample alone"
                yield label, got, expected[:1]


def _batches(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, Tensor]]:
    """A new mixer, tokens and their mask, of samples of which one is whole; of one token, in a
    later layer behind a prefix token, far down a sequence, and in a batch that is large.
    """
    for length in subject.lengths(1, 17, 33, FAR):
        count = 3 if length != 17 else MANY
        real = [max(1, tokens) for tokens in (length, length // 2, length - 5)]
        if length == 33:
            mixer = subject.build_elsewhere(length, num_prefix_tokens=1)
        else:
            mixer = subject.build_for(length)
        x = subject.tokens(count, length)
        if length > 1 or _takes(mixer, x):
            yield mixer, x, padded(length, real * (count // 3))


def _takes(mixer: TokenMixer, x: Tensor) -> bool:
    """Whether it can be called with one token; another check tells where it cannot."""
    try:
        return bool(outputs(mixer, x).isfinite().all())
    except Exception:
        return False


def _two_batches(subject: CheckSubject) -> Iterator[tuple[str, MixerOutput, MixerOutput]]:
    """Results of two batches in each mode: every other sample of the second one is louder, with
    another mask.
    """
    for mixer, x, keep in _batches(subject):
        own = torch.arange(len(x))[:, None] % 2 == 0
        tokens = torch.where(own[..., None], x, 5 * x.flip(1) + 1)
        mask = torch.where(own, keep, ~keep.flip(1) | keep)
        for mode in modes(mixer):
            with torch.no_grad():
                yield mode, call(afresh(mixer), x, keep), call(afresh(mixer), tokens, mask)


def _no_carry(subject: CheckSubject) -> str:
    return "" if subject.hands_on else "hands no carry on"


@shows("three layers with their carry keep the properties of one", excluded=_no_carry)
def _carry(subject: CheckSubject) -> Finding:
    stack, length = replace(subject, stacked=True), subject.at_most(LENGTH)
    mask = influence.padding_masks(length)["right"]
    for what, keep in {"": None, " with padding": mask}.items():
        passes(f"three layers{what}", stack.build(), stack.tokens(3, length), keep)
    _call_without_carry(subject)
    properties = {
        "samples apart": [_batch_outputs],
        "causal": [influence.causal_outputs, influence.causal_gradients],
        "padding invariant": [influence.padding_content, influence.padding_amount],
    }
    kept = {name: checks for name, checks in properties.items() if not checks[0].excluded(stack)}
    found = [check.run(stack) for checks in kept.values() for check in checks]
    measured_gradients(stack)
    worst = max(found, key=lambda finding: finding.figures["worst"])
    return Finding(f"{worst.words}; three layers: {', '.join(kept)}", worst.figures)


def _call_without_carry(subject: CheckSubject) -> None:
    """A later layer above one of another mixer: it works, or refuses in words of its own.

    Raises:
        CheckFailed: it does neither.
    """
    try:
        passes(
            "a second layer without a carry", subject.build(layer_index=1), *subject.pair(LENGTH)
        )
    except CheckFailed:
        raise
    except SubquadError:
        return
    except Exception as error:
        advice = "go on without it, or raise a PluginError that says what is missing"
        raise CheckFailed(f"a second layer without a carry: {cause(error)}; {advice}") from error
