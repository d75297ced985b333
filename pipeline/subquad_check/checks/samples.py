"""What must have no influence, where that is claimed: padding, whatever it holds and however much
of it stands where; and other samples of a batch, on outputs, gradients and extra losses. Layers
with their carry keep the properties of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from subquad.errors import SubquadError
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad_check.calls import (
    Form,
    Tensors,
    afresh,
    alike,
    call,
    changed,
    gradients,
    input_gradient,
    modes,
    outputs,
    padded,
    passes,
    trainable,
    weighted,
)
from subquad_check.cases import compares, shows
from subquad_check.checks import gradients as differences
from subquad_check.checks import influence
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    finite,
    within,
)
from subquad_check.subject import FAR, MAX_LEN, CheckSubject

LENGTH = 21
LOUD = 10.0
"""Size of what stands in the padding, in standard deviations of a token."""
OVERFLOWING = 3e3
"""The same, where the exponential of a score would be infinite."""


def _not_claimed(subject: CheckSubject) -> str:
    return "" if subject.facts.padding_invariant else "padding_invariant not claimed"


@compares(
    "outputs and gradients do not depend on what padding holds, and reach none",
    0.0,
    leaks=True,
    excluded=_not_claimed,
)
def padding_content(subject: CheckSubject) -> Comparisons:
    """Loud noise in the padding, at fixed shape, and so loud that its exponentials overflow; in
    training also gradients.
    """
    for mixer, x, side, keep in _padding_cases(subject):
        about = f", other content in the padding ({side})"
        yield from alike(mixer, x, keep, other_padding(x, keep), about=about)
        for mode in modes(mixer):
            finite(
                f"output at real tokens in {mode}, huge numbers in the padding ({side})",
                outputs(mixer, changed(x, ~keep, OVERFLOWING), keep)[keep],
            )
        expected = input_gradient(mixer, x, keep, keep)
        label = f"gradient of outputs at real tokens by padding ({side})"
        yield label, expected[~keep], None, expected
        got = input_gradient(mixer, changed(x, ~keep, LOUD), keep, keep)
        yield f"gradient by real tokens{about}", got[keep], expected[keep]


def other_padding(x: Tensor, keep: Tensor) -> dict[str, Form]:
    """The same real tokens and loud noise in the padding."""
    return {"at real tokens": Form(changed(x, ~keep, LOUD), keep, keep, keep)}


@compares(
    "outputs do not depend on how much padding stands before or after",
    leaks=True,
    excluded=_not_claimed,
)
def padding_amount(subject: CheckSubject) -> Comparisons:
    """A sample alone against the same sample with padding before, after, and on both sides."""
    most = subject.at_most(MAX_LEN)
    for real in {1, max(1, subject.at_most(11) // 2), max(1, subject.at_most(LENGTH) - 8)}:
        rest = most - real
        amounts = [(0, 1), (0, 7), (1, 0), (7, 0), (5, 3), (0, rest), (rest, 0)]
        x = subject.tokens(2, real)
        yield from _around(
            subject.build(max_len=most),
            LOUD * x if real == 1 else x,
            [amount for amount in amounts if sum(amount) <= rest],
        )
    far = subject.at_most(FAR)
    if far > 2 * most:
        x = subject.tokens(1, far - 90)
        yield from _around(subject.build(max_len=far), x, [(0, 60), (60, 30)])
    mixer = subject.build_elsewhere(most, num_prefix_tokens=1)
    real = (most + 1) // 2
    yield from _around(
        mixer, subject.tokens(2, real), [(0, most - real)], ", behind a prefix token"
    )


def _around(
    mixer: TokenMixer, x: Tensor, amounts: Sequence[tuple[int, int]], about: str = ""
) -> Iterator[Comparison]:
    """Tokens alone, and with amounts of padding before and after."""
    samples, real, _ = x.shape
    forms = {}
    for before, after in amounts:
        end = before + real
        forms[f"of {real} tokens with {before} padded before and {after} after"] = Form(
            nn.functional.pad(x, (0, 0, before, after), value=LOUD),
            padded(end + after, [real] * samples, lead=[before] * samples),
            (slice(None), slice(before, end)),
        )
    return alike(mixer, x, None, forms, about=about, dropout=False)


def _padding_cases(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, str, Tensor]]:
    """A mixer, tokens of three samples, and their mask: padding behind, in front, on both sides
    and of a single token; in a later layer, with a token in front that belongs to none, and in
    float32, where what rounds may not leak; also far down.
    """
    length = subject.at_most(LENGTH)
    x = subject.tokens(3, length)
    masks = padding_masks(length)
    for side, keep in masks.items():
        yield subject.build(), x, side, keep
    mixer = subject.build_elsewhere(length, num_prefix_tokens=1)
    yield mixer, x, "right, behind a prefix token", masks["right"]
    if not subject.facts.leak:
        single = subject.build_elsewhere(length, dtype=torch.float32)
        yield single, x.float(), "left, in float32 in a later layer", masks["left"]
    far = subject.at_most(FAR)
    if far > length:
        real = [max(1, far - 60), max(1, far - 100), max(1, far // 4)]
        keep = padded(far, real, lead=[0, far // 25, far // 3])
        yield subject.build(max_len=far), subject.tokens(3, far), f"{far} tokens", keep


def padding_masks(length: int) -> Tensors:
    """Three samples of different lengths, padded behind, in front, and on both sides; and one token
    of padding in all of them.
    """
    real = (length, max(1, 2 * length // 3), max(1, length // 4))
    lead = [(length - tokens) // 2 for tokens in real]
    right = padded(length, real)
    return {
        "right": right,
        "left": right.flip(1),
        "both sides": padded(length, real, lead=lead),
        "a single token": padded(length, (length, max(1, length - 1), length)),
    }


MANY = 33
"""Samples of a large batch."""


def _coupled(subject: CheckSubject) -> str:
    return "couples_samples is claimed" if subject.facts.couples_samples else ""


@compares(
    "outputs do not depend on other samples, nor on their number",
    0.0,
    leaks=True,
    excluded=_coupled,
)
def _batch_outputs(subject: CheckSubject) -> Comparisons:
    """Other samples, and other masks of theirs, at fixed shape; and a sample alone. In evaluation
    and in training mode.
    """
    allowed = subject.at_least(ROUNDING)
    for mixer, x, keep in _batches(subject):
        forms = {"of every other sample, others changed": _others_changed(x, keep)}
        yield from alike(mixer, x, keep, forms)
        is_far = x.shape[1] >= FAR
        forms = {}
        for own in range(0, 1 if is_far else len(x), len(x) // 3):
            alone = slice(own, own + 1)
            what = f"of sample {own} alone against in a batch"
            forms[what] = Form(x[alone], keep[alone], plain=alone)
        yield from within(allowed, alike(mixer, x, keep, forms, dropout=False))
        if not is_far:
            forms = {"of a sample alone against in a batch without a mask": Form(x[:1], plain=[0])}
            yield from within(allowed, alike(mixer, x, None, forms, dropout=False))


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
    0.0,
    leaks=True,
    excluded=_coupled,
)
def _batch_gradients(subject: CheckSubject) -> Comparisons:
    """Gradients in training; losses in both modes."""
    has_losses = not _no_losses(subject)
    for mixer, x, keep in _batches(subject):
        tokens = x.clone().requires_grad_()
        result = call(mixer.train(), tokens, keep)
        losses = [loss[1] for loss in result.losses.values() if loss.dim()]
        value = sum(losses, weighted(result.out[1]).sum())
        grad = gradients(value, {"tokens": tokens})["gradient by tokens"]
        for other in (0, 2):
            label = f"gradient of sample 1 by sample {other} of {x.shape[1]} tokens"
            yield label, grad[other], None, grad
        form = _others_changed(x, keep)
        for mode in modes(mixer) if has_losses else ():
            with torch.no_grad():
                losses = call(afresh(mixer), x, keep).losses
                other = call(afresh(mixer), form.x, form.keep).losses
            for name, loss in losses.items():
                if loss.dim():
                    label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                    yield label, other[name][0], loss[0], loss


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
    passes("three layers with padding", stack.build(), x, padding_masks(length)["right"])
    what = "a second layer without a carry"
    try:  # above one of another mixer
        passes(what, subject.build(layer_index=1), *subject.pair(LENGTH))
    except CheckFailed:
        raise
    except SubquadError:  # it refuses in words of its own
        pass
    except Exception as error:
        raise CheckFailed(
            f"{what}: {cause(error)}; go on without it, or raise a PluginError that says what is "
            "missing"
        ) from error
    properties = {
        "samples apart": [_batch_outputs],
        "causal": [influence.causal_outputs, influence.causal_gradients],
        "padding invariant": [padding_content, padding_amount],
    }
    kept = {name: checks for name, checks in properties.items() if not checks[0].excluded(stack)}
    found = [check.run(stack) for checks in kept.values() for check in checks]
    differences.gradients_.run(stack)
    worst = max(found, key=lambda finding: finding.figures["worst"])
    return Finding(f"{worst.words}; three layers: {', '.join(kept)}", worst.figures)
