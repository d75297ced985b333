"""What must have no influence: later positions, padding, other samples; and the order of the tokens, as far as claimed.

It is replaced, and outputs have to stay as they were, but for the declared `leak`; gradients must not reach it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.testing.check import ROUNDING, CheckFailed, Finding, Meter, finite, shows
from subquad.testing.checks.shapes import passes
from subquad.testing.subject import (
    FAR,
    MAX_LEN,
    CheckSubject,
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

LENGTH = 21
CUTS = {9: tuple(range(1, 9)), 150: (1, 2, 16, 33, 64, 65, 127, 128, 149), FAR: (65, 500, 901, 1024)}
"""Lengths for causality, and cuts into past and future: at every position, at those near which chunked scans cut a
sequence into pieces, and far down."""
SHORT, LONG, _ = CUTS
LOUD = 10.0
"""Size of what stands in the padding, in standard deviations of a token."""
ORDERS = 8
REFUTED = 1e-6
"""A permutation that moves an output by more than this part of the largest is no rounding."""


@shows("what is declared as leak is no more than rounding")
def _leak(subject: CheckSubject) -> Finding:
    leak = subject.facts.leak
    if not 0 <= leak <= ROUNDING:
        raise CheckFailed(f"leak {leak:g} is declared, allowed 0 to {ROUNDING:g}: no rounding is as large")
    return Finding(f"leak {leak:g}", {"declared": leak, "allowed": ROUNDING})


@shows("permuting tokens permutes outputs, as far as claimed")
def _permutation(subject: CheckSubject) -> Finding:
    """Several orders: random ones, a swap of neighbours, a cyclic shift and the reversal, which is tried far, too."""
    meter = Meter(math.inf)
    for length in dict.fromkeys(map(subject.at_most, (17, FAR))):
        mixer, x = subject.build(max_len=max(length, MAX_LEN)), subject.tokens(1 if length > MAX_LEN else 2, length)
        for _ in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            for order in list(_orders(length))[-1 if length > MAX_LEN else -3 if mixer.training else 0 :]:
                meter.compare("output", outputs(mixer, x[:, order], dropout=False), expected[:, order])
    worst, claim = meter.worst, subject.facts.permutation_equivariant
    claim = None if subject.causal and claim else claim
    if claim is True and worst > ROUNDING:
        raise CheckFailed(
            f"claimed equivariant, but a permutation moves an output by {worst:.1e} of the largest, "
            f"allowed {ROUNDING:g}"
        )
    if claim is False and worst < REFUTED:
        raise CheckFailed(
            f"claimed not equivariant, but no permutation moved an output by more than {worst:.1e} of the largest"
        )
    word = "equivariant" if worst <= ROUNDING else "not equivariant"
    note = "" if claim is not None else ", nothing claimed"
    return Finding(f"{word}: moved by {worst:.1e}{note}", {"worst": worst, "claimed": claim})


def _orders(length: int) -> Iterator[Tensor]:
    generator, place = torch.Generator().manual_seed(9), torch.arange(length)
    yield from (torch.randperm(length, generator=generator) for _ in range(ORDERS))
    yield from (torch.cat([place[:2].flip(0), place[2:]]), place.roll(1), place.flip(0))


def _not_causal(subject: CheckSubject) -> str:
    if subject.causal:
        return ""
    return "declared causal: never" if subject.facts.causal == "never" else "not built causal"


@shows("outputs depend on no later token or mask", excluded=_not_causal)
def _causal_outputs(subject: CheckSubject) -> Finding:
    """Other tokens, and other masks, from position t on; outputs at real tokens before t as they were."""
    meter = Meter(subject.facts.leak)
    for mixer, x, keep, cuts, later in _causal_cases(subject):
        other = 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
        changes = {"changed": (torch.where(later[..., None], other, x), keep)}
        if keep is not None:  # without a mask another kernel may run
            changes["padded"] = (x, keep & ~later)
        watched = ~later if keep is None else keep & ~later
        for mode in modes(mixer):
            expected = outputs(mixer, x, keep)
            for done, batch in changes.items():
                for cut, got, wanted, own in zip(cuts, outputs(mixer, *batch), expected, watched, strict=True):
                    label = f"output before position {cut} of {x.shape[1]} in {mode}, later tokens {done}"
                    meter.compare(label, got[own], wanted[own], scale=expected)
    return meter.finding()


@shows("gradients of outputs depend on no later token, and reach none", excluded=_not_causal)
def _causal_gradients(subject: CheckSubject) -> Finding:
    """In training, gradients of outputs before t: none into later tokens, and the same whatever stands there."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    for mixer, x, keep, cuts, later in _causal_cases(subject, behind=False):
        watched = ~later if keep is None else keep & ~later
        other = torch.where(later[..., None], 3 * x.flip(1), x)
        got, expected = (_input_gradient(mixer.train(), one, keep, watched) for one in (other, x))
        for cut, after, mine, wanted in zip(cuts, later, got, expected, strict=True):
            name = f"gradient of outputs before position {cut} of {x.shape[1]} by"
            meter.zero(f"{name} later tokens", wanted[after], scale=expected)
            label = f"{name} earlier tokens, later ones changed"
            meter.compare(label, mine[~after], wanted[~after], scale=expected)
    return meter.finding()


@shows("weight gradients of outputs depend on no later token", excluded=_not_causal)
def _causal_weight_gradients(subject: CheckSubject) -> Finding:
    meter = Meter(ROUNDING, "the largest gradient")
    for length, cuts in _lengths_with_cuts(subject, SHORT, FAR):
        mixer, x = subject.build(max_len=max(length, MAX_LEN)).train(), subject.tokens(2, length)
        largest = None
        for cut in cuts if length <= SHORT else cuts[-1:]:
            changed = torch.where((torch.arange(length) >= cut)[:, None], 3 * x.flip(1), x)
            got, expected = (_weight_gradients(mixer, one, cut) for one in (changed, x))
            largest = largest or _weight_gradients(mixer, x, length)
            label = f" of outputs before position {cut} of {length}, later tokens changed"
            meter.compare_all(got, expected, label, scale=largest.values())
    return meter.finding()


def _weight_gradients(mixer: TokenMixer, x: Tensor, cut: int) -> dict[str, Tensor]:
    """Of a weighted sum of the outputs before a cut."""
    found = gradients(weighted(call(afresh(mixer), x).out[:, :cut]).sum(), trainable(mixer))
    return {f"gradient by {name}": grad for name, grad in found.items()}


@shows("how many tokens follow does not matter", excluded=_not_causal)
def _causal_lengths(subject: CheckSubject) -> Finding:
    meter = Meter(ROUNDING)
    for length, cuts in _lengths_with_cuts(subject, LONG, FAR):
        mixer, x = subject.build(max_len=length), subject.tokens(2, length)
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            for cut in cuts:
                got = outputs(mixer, x[:, :cut].contiguous(), dropout=False)
                label = f"output of the first {cut} tokens alone against within {length} in {mode}"
                meter.compare(label, got, expected[:, :cut])
    return meter.finding()


def _lengths_with_cuts(subject: CheckSubject, *lengths: int) -> Iterator[tuple[int, list[int]]]:
    """Lengths that the mixer takes, and the cuts of each."""
    for length, most in {subject.at_most(length): length for length in lengths[::-1]}.items():
        if cuts := [cut for cut in CUTS[most] if cut < length]:
            yield length, cuts


def _causal_cases(
    subject: CheckSubject, *, behind: bool = True
) -> Iterator[tuple[TokenMixer, Tensor, Tensor | None, list[int], Tensor]]:
    """A mixer, tokens of a sample for each cut, a mask (none, padding in front, also behind), cuts, and what is later.

    Every other sample has padding. Far down a sequence it stands in front only.
    """
    for length, cuts in _lengths_with_cuts(subject, *CUTS):
        mixer, x = subject.build(max_len=max(length, MAX_LEN)), subject.tokens(len(cuts), length)
        mask = padded(length, [length if i % 2 else max(1, 2 * length // 3) for i in range(len(cuts))])
        for keep in (None, *([mask] if behind and length < FAR else []), mask.flip(1)):
            yield mixer, x, keep, cuts, torch.arange(length) >= torch.tensor(cuts)[:, None]


def _not_claimed(subject: CheckSubject) -> str:
    return "" if subject.facts.padding_invariant else "padding_invariant not claimed"


@shows("outputs do not depend on what padding holds, left and right", excluded=_not_claimed)
def _padding_content(subject: CheckSubject) -> Finding:
    """Loud noise in the padding, at fixed shape."""
    meter = Meter(subject.facts.leak)
    for mixer, x, side, keep in _padding_cases(subject):
        noise = LOUD * torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
        for mode in modes(mixer):
            got, expected = (outputs(mixer, torch.where(keep[..., None], x, one), keep)[keep] for one in (noise, x))
            meter.compare(f"output at real tokens in {mode}, other content in the padding ({side})", got, expected)
    return meter.finding()


@shows("gradients do not depend on what padding holds, and reach none", excluded=_not_claimed)
def _padding_gradients(subject: CheckSubject) -> Finding:
    """In training."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    for mixer, x, side, keep in _padding_cases(subject):
        other = torch.where(keep[..., None], x, LOUD * x.flip(1))
        expected, got = (_input_gradient(mixer.train(), one, keep, keep) for one in (x, other))
        meter.zero(f"gradient of outputs at real tokens by padding ({side})", expected[~keep], scale=expected)
        meter.compare(f"gradient by real tokens, other content in the padding ({side})", got[keep], expected[keep])
    return meter.finding()


@shows("outputs do not depend on how much padding stands before or after", excluded=_not_claimed)
def _padding_amount(subject: CheckSubject) -> Finding:
    """A sample alone against the same sample with padding before, after, and on both sides."""
    meter, most, far = Meter(max(ROUNDING, subject.facts.leak)), subject.at_most(MAX_LEN), subject.at_most(FAR)
    few = (1, subject.at_most(11) // 2 or 1, max(1, subject.at_most(LENGTH) - 8))
    for real in dict.fromkeys((*few, max(1, far - 90))):
        amounts = ((0, 1), (0, 7), (1, 0), (7, 0), (5, 3), (0, most - real), (most - real, 0))
        longest = most if real in few else far
        mixer, x = subject.build(max_len=max(longest, most)), subject.tokens(2 if real in few else 1, real)
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            for before, after in amounts[4 * mixer.training :] if real in few else ((0, 60), (60, 30)):
                if real + before + after > longest:
                    continue
                wide = nn.functional.pad(x, (0, 0, before, after), value=LOUD)
                keep = padded(wide.shape[1], [real] * len(x), lead=[before] * len(x))
                got = outputs(mixer, wide, keep, dropout=False)[:, before : before + real]
                label = f"output of {real} tokens with {before} padded before and {after} after in {mode}"
                meter.compare(label, got, expected)
    return meter.finding()


def _padding_cases(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, str, Tensor]]:
    """A mixer, tokens of three samples, and their mask: padding behind, in front and on both sides; also far down."""
    length, far = map(subject.at_most, (LENGTH, FAR))
    mixer, x = subject.build(), subject.tokens(3, length)
    for side, keep in _padding_masks(length).items():
        yield mixer, x, side, keep
    if far > length:
        real, lead = (max(1, far - 60), max(1, far - 100), max(1, far // 4)), (0, far // 25, far // 3)
        yield subject.build(max_len=far), subject.tokens(3, far), f"{far} tokens", padded(far, real, lead=lead)


def _padding_masks(length: int) -> dict[str, Tensor]:
    """Three samples of different lengths, padded behind, in front, and on both sides."""
    real = (length, max(1, 2 * length // 3), max(1, length // 4))
    right, both = padded(length, real), padded(length, real, lead=[(length - n) // 2 for n in real])
    return {"right": right, "left": right.flip(1), "both sides": both}


@shows("outputs do not depend on other samples, also in training")
def _batch_outputs(subject: CheckSubject) -> Finding:
    """Other samples, and other masks of theirs, at fixed shape; in evaluation and in training mode."""
    meter = Meter(subject.facts.leak)
    for mode, first, second in _two_batches(subject):
        for own in (0, 2):
            meter.compare(f"output of sample {own} in {mode}, other samples changed", second.out[own], first.out[own])
    return meter.finding()


def _no_losses(subject: CheckSubject) -> str:
    mixer = subject.build().train()
    with torch.no_grad():
        found = call(mixer, subject.pair(LENGTH)[0]).losses
    return "" if found or mixer.loss_weights else "returns no extra loss"


@shows("extra losses are finite, differentiable, one a sample, and have weights", excluded=_no_losses)
def _losses(subject: CheckSubject) -> Finding:
    """Shape (B,), finite, with a gradient, and named in `loss_weights`, whose every name is returned."""
    length = subject.at_most(LENGTH)
    mixer, x = subject.build().train(), subject.tokens(3, length).requires_grad_()
    for keep in (None, padded(length, (length, (length + 1) // 2, 1))):
        found = call(mixer, x, keep).losses
        if odd := sorted(set(found) ^ set(mixer.loss_weights)):
            raise CheckFailed(f"losses {sorted(found)} and loss_weights {sorted(mixer.loss_weights)} differ in {odd}")
        for name, value in found.items():
            if value.shape != (3,):
                raise CheckFailed(f"loss {name!r} has the shape {tuple(value.shape)}, expected (B,) = (3,)")
            finite(f"loss {name!r}", value)
            if not any(grad.any() for grad in gradients(value.sum(), {"tokens": x, **trainable(mixer)}).values()):
                raise CheckFailed(f"loss {name!r} has no gradient by tokens or weights")
    return Finding(", ".join(f"{name} x {weight:g}" for name, weight in mixer.loss_weights.items()))


@shows("a sample's extra loss does not depend on other samples", excluded=_no_losses)
def _batch_losses(subject: CheckSubject) -> Finding:
    meter = Meter(subject.facts.leak, "the largest loss")
    for mode, first, second in _two_batches(subject):
        for name, loss in first.losses.items():
            if loss.dim():
                label = f"loss {name!r} of sample 0 in {mode}, other samples changed"
                meter.compare(label, second.losses[name][0], loss[0], scale=loss)
    return meter.finding()


@shows("a sample's gradient reaches no other sample")
def _batch_gradients(subject: CheckSubject) -> Finding:
    """In training."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    for mixer, x, keep in _batches(subject):
        tokens = x.clone().requires_grad_()
        result = call(mixer.train(), tokens, keep)
        losses = sum(loss[1] for loss in result.losses.values() if loss.dim())
        grad = gradients(weighted(result.out[1]).sum() + losses, {"tokens": tokens})["tokens"]
        for other in (0, 2):
            meter.zero(f"gradient of sample 1 by sample {other} of {x.shape[1]} tokens", grad[other], scale=grad)
    return meter.finding()


@shows("a sample gives the same alone and in a batch")
def _batch_size(subject: CheckSubject) -> Finding:
    meter = Meter(ROUNDING)
    for mixer, x, keep in _batches(subject):
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, keep, dropout=False)
            for own in range(3 if x.shape[1] < FAR else 1):
                got = outputs(mixer, x[own : own + 1], keep[own : own + 1], dropout=False)[0]
                meter.compare(f"output of a sample alone against in a batch in {mode}", got, expected[own])
            if x.shape[1] < FAR:
                got, expected = (outputs(mixer, one, dropout=False) for one in (x[:1], x))
                meter.compare(f"output of a batch without a mask in {mode}, sample alone", got, expected[:1])
    return meter.finding()


def _batches(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, Tensor]]:
    """A new mixer, tokens of three samples and their mask; also far down a sequence."""
    for length in dict.fromkeys(map(subject.at_most, (17, FAR))):
        mask = padded(length, [max(1, n) for n in (length - 2, length // 2, length - 5)])
        yield subject.build(max_len=max(length, MAX_LEN)), subject.tokens(3, length), mask


def _two_batches(subject: CheckSubject) -> Iterator[tuple[str, MixerOutput, MixerOutput]]:
    """Results of two batches in each mode: sample 1 of the second one is louder, with another mask."""
    own = torch.tensor([True, False, True])
    for mixer, x, keep in _batches(subject):
        tokens = torch.where(own[:, None, None], x, 5 * x.flip(1) + 1)
        other = tokens, torch.where(own[:, None], keep, ~keep.flip(1) | keep)
        for mode in modes(mixer):
            with torch.no_grad():
                yield mode, call(afresh(mixer), x, keep), call(afresh(mixer), *other)


def _no_carry(subject: CheckSubject) -> str:
    with torch.no_grad():
        carry = call(subject.build(), subject.tokens(2, subject.at_most(LENGTH))).carry
    return "" if carry is not None else "hands no carry on"


@shows("two layers with their carry keep the properties of one", excluded=_no_carry)
def _carry(subject: CheckSubject) -> Finding:
    two, length = replace(subject, stacked=True), subject.at_most(LENGTH)
    for what, keep in {"": None, " with padding": _padding_masks(length)["right"]}.items():
        passes(f"two layers{what}", two.build(), two.tokens(3, length), keep)
    asked = {
        "samples apart": [_batch_outputs],
        "causal": [_causal_outputs, _causal_gradients],
        "padding invariant": [_padding_content, _padding_amount],
    }
    found = {
        name: [check.run(two) for check in checks] for name, checks in asked.items() if not checks[0].excluded(two)
    }
    worst = max((one for several in found.values() for one in several), key=lambda one: one.figures["worst"])
    return Finding(f"{worst.seen}; two layers: {', '.join(found)}", worst.figures)


def _input_gradient(mixer: nn.Module, x: Tensor, keep: Tensor | None, watched: Tensor) -> Tensor:
    """Gradient by tokens of a weighted sum of the outputs that are watched, (B, L) bool."""
    x = x.detach().clone().requires_grad_()
    return gradients(weighted(call(afresh(mixer), x, keep).out)[watched].sum(), {"tokens": x})["tokens"]
