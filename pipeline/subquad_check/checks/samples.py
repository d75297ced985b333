"""Samples of a batch keep apart: outputs, gradients and extra losses; and layers with their
carry keep the properties of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from subquad.errors import SubquadError
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad_check.calls import (
    Form,
    afresh,
    call,
    changed,
    gradients,
    modes,
    outputs,
    padded,
    passes,
    same,
    trainable,
    weighted,
)
from subquad_check.cases import compares, leak_of, shows
from subquad_check.checks import gradients as differences
from subquad_check.checks import influence, padding
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    finite,
    within,
)
from subquad_check.subject import FAR, CheckSubject

LENGTH = padding.LENGTH
MANY = 33
"""Samples of a large batch."""


def _coupled(subject: CheckSubject) -> str:
    return "couples_samples is claimed" if subject.facts.couples_samples else ""


@compares("outputs do not depend on other samples, nor on their number", leak_of, excluded=_coupled)
def _batch_outputs(subject: CheckSubject) -> Comparisons:
    """Other samples, and other masks of theirs, at fixed shape; and a sample alone. In evaluation
    and in training mode.
    """
    for mixer, x, keep in _batches(subject):
        forms = {"of every other sample, others changed": _others_changed(x, keep)}
        yield from same(mixer, x, keep, forms)
    yield from within(subject.at_least(ROUNDING), _alone(subject))


def _others_changed(x: Tensor, keep: Tensor) -> Form:
    """Every other sample is louder, with another mask."""
    other = torch.arange(len(x))[:, None] % 2 == 1
    own = slice(None, None, 2)
    return Form(changed(x, other, 5), keep | other & ~keep.flip(1), own, own)


def _no_losses(subject: CheckSubject) -> str:
    mixer = subject.build()
    mixer.train()
    x, _ = subject.pair(LENGTH)
    with torch.no_grad():
        result = call(mixer, x)
    return "" if result.losses or mixer.loss_weights else "returns no extra loss"


@shows(
    "extra losses are finite, differentiable, one a sample or one in all, and have weights",
    excluded=_no_losses,
)
def _losses(subject: CheckSubject) -> Finding:
    """Shape (B,), or () for the batch, finite, with a gradient, and named in `loss_weights`, whose
    every name is returned.
    """
    length = subject.at_most(LENGTH)
    mixer = subject.build()
    mixer.train()
    x = subject.tokens(3, length).requires_grad_()
    weights = mixer.loss_weights
    inputs = {"tokens": x, **trainable(mixer)}
    for keep in (None, padded(length, (length, (length + 1) // 2, 1))):
        losses = call(mixer, x, keep).losses
        odd = set(losses) ^ set(weights)
        if odd:
            raise CheckFailed(
                f"losses {sorted(losses)} and loss_weights {sorted(weights)} "
                f"differ in {sorted(odd)}"
            )
        for name, value in losses.items():
            label = f"loss {name!r}"
            if value.shape not in ((3,), ()):
                raise CheckFailed(
                    f"{label} has the shape {tuple(value.shape)}, expected (B,) = (3,) or ()"
                )
            finite(label, value)
            if not any(grad.any() for grad in gradients(value.sum(), inputs).values()):
                raise CheckFailed(f"{label} has no gradient by tokens or weights")
    return Finding(", ".join([f"{name} x {weight:g}" for name, weight in weights.items()]))


@compares(
    "a sample's gradient reaches no other sample, nor does its extra loss",
    leak_of,
    excluded=_coupled,
)
def _batch_gradients(subject: CheckSubject) -> Comparisons:
    """Gradients in training."""
    for mixer, x, keep in _batches(subject):
        tokens = x.clone().requires_grad_()
        result = call(mixer.train(), tokens, keep)
        losses = [loss[1] for loss in result.losses.values() if loss.dim()]
        value = sum(losses, weighted(result.out[1]).sum())
        grad = gradients(value, {"tokens": tokens})["tokens"]
        for other in (0, 2):
            label = f"gradient of sample 1 by sample {other} of {x.shape[1]} tokens"
            yield label, grad[other], None, grad
    if _no_losses(subject):
        return
    for mixer, x, keep in _batches(subject):
        form = _others_changed(x, keep)
        for mode in modes(mixer):
            with torch.no_grad():
                losses = call(afresh(mixer), x, keep).losses
                other = call(afresh(mixer), form.x, form.keep).losses
            for name, loss in losses.items():
                if loss.dim():
                    label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                    yield label, other[name][0], loss[0], loss


def _alone(subject: CheckSubject) -> Iterator[Comparison]:
    """A sample alone against the same in a batch."""
    for mixer, x, keep in _batches(subject):
        is_far = x.shape[1] >= FAR
        forms = {}
        for own in range(0, 1 if is_far else len(x), len(x) // 3):
            alone = slice(own, own + 1)
            what = f"of sample {own} alone against in a batch"
            forms[what] = Form(x[alone], keep[alone], plain=alone)
        yield from same(mixer, x, keep, forms, dropout=False)
        if not is_far:
            form = Form(x[:1], plain=slice(1))
            what = "of a sample alone against in a batch without a mask"
            yield from same(mixer, x, None, {what: form}, dropout=False)


def _batches(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, Tensor]]:
    """A new mixer, tokens and their mask, of samples of which one is whole; of one token, in a
    later layer behind a prefix token, far down a sequence, and in a batch that is large.
    """
    for length in subject.lengths(1, 17, 33, FAR):
        count = 3 if length != 17 else MANY
        real = [length, max(1, length // 2), max(1, length - 5)]
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


@shows(
    "three layers with their carry keep the properties of one",
    excluded=lambda subject: "" if subject.hands_on else "hands no carry on",
)
def _carry(subject: CheckSubject) -> Finding:
    stack = subject.altered(stacked=True)
    length = subject.at_most(LENGTH)
    x = stack.tokens(3, length)
    passes("three layers", stack.build(), x, None)
    passes("three layers with padding", stack.build(), x, padding.padding_masks(length)["right"])
    _call_without_carry(subject)
    properties = {
        "samples apart": [_batch_outputs],
        "causal": [influence.causal_outputs, influence.causal_gradients],
        "padding invariant": [padding.padding_content, padding.padding_amount],
    }
    kept = {name: checks for name, checks in properties.items() if not checks[0].excluded(stack)}
    found = [check.run(stack) for checks in kept.values() for check in checks]
    differences.gradients_.run(stack)
    worst = max(found, key=lambda finding: finding.figures["worst"])
    return Finding(f"{worst.words}; three layers: {', '.join(kept)}", worst.figures)


def _call_without_carry(subject: CheckSubject) -> None:
    """A later layer above one of another mixer: it works, or refuses in words of its own.

    Raises:
        CheckFailed: it does neither.
    """
    what = "a second layer without a carry"
    try:
        passes(what, subject.build(layer_index=1), *subject.pair(LENGTH))
    except CheckFailed:
        raise
    except SubquadError:
        return
    except Exception as error:
        raise CheckFailed(
            f"{what}: {cause(error)}; go on without it, or raise a PluginError that says what is "
            "missing"
        ) from error
