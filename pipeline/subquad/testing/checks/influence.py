"""What must have no influence: later positions and padding; and the order of the tokens, as far as
claimed.

It is replaced, and outputs have to stay as they were, but for the declared `leak`; gradients must
not reach it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad.testing.calls import (
    afresh,
    call,
    gradients,
    modes,
    normal,
    outputs,
    padded,
    settled_modes,
    trainable,
    weighted,
)
from subquad.testing.cases import compares, leak_of, shows
from subquad.testing.meter import ROUNDING, CheckFailed, Comparisons, Finding, Meter, each
from subquad.testing.subject import FAR, MAX_LEN, CheckSubject

LENGTH = 21
CUTS = {
    9: tuple(range(1, 9)),
    150: (1, 2, 16, 33, 64, 65, 127, 128, 149),
    FAR: (65, 500, 901, 1024, 1099),
}
"""Lengths for causality, and cuts into past and future: at every position, at those near which
chunked scans cut a sequence into pieces, and far down.
"""
SHORT, LONG, _ = CUTS
EACH = 32
SAMPLES = 17
"""Of a batch with a cut in each."""
LOUD = 10.0
"""Size of what stands in the padding, in standard deviations of a token."""
ORDERS = 8
REFUTED = 1e-6
"""A permutation that moves an output by more than this part of the largest is no rounding."""


@shows("what is declared as leak is no more than rounding")
def _leak(subject: CheckSubject) -> Finding:
    leak = subject.facts.leak
    if not 0 <= leak <= ROUNDING:
        raise CheckFailed(
            f"leak {leak:g} is declared, allowed 0 to {ROUNDING:g}: no rounding is as large"
        )
    return Finding(f"leak {leak:g}", {"declared": leak, "allowed": ROUNDING})


@shows("permuting tokens permutes outputs, as far as claimed")
def _permutation(subject: CheckSubject) -> Finding:
    """Several orders: random ones, a swap of neighbours, a cyclic shift and the reversal, which
    is tried far, too.
    """
    worst, claim = _largest_move(subject), subject.facts.permutation_equivariant
    allowed = subject.at_least(ROUNDING)
    if subject.causal and claim:
        claim = None
    if claim is True and worst > allowed:
        raise CheckFailed(
            f"claimed equivariant, but a permutation moves an output by {worst:.1e} of the "
            f"largest, allowed {allowed:g}"
        )
    if claim is False and worst < REFUTED:
        raise CheckFailed(
            "claimed not equivariant, but no permutation moved an output by more than "
            f"{worst:.1e} of the largest"
        )
    word = "equivariant" if worst <= allowed else "not equivariant"
    note = "" if claim is not None else ", nothing claimed"
    return Finding(f"{word}: moved by {worst:.1e}{note}", {"worst": worst, "claimed": claim})


def _largest_move(subject: CheckSubject) -> float:
    """By how much of the largest output a permutation moves one."""
    meter = Meter(math.inf)
    for length in subject.lengths(17, FAR):
        far = length > MAX_LEN
        mixer, x = subject.build_for(length), subject.tokens(1 if far else 2, length)
        for _ in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            orders = _orders(length)
            for order in orders[-1 if far else -3 if mixer.training else 0 :]:
                moved = outputs(mixer, x[:, order], dropout=False)
                meter.compare("output", moved, expected[:, order])
    return meter.worst


def _orders(length: int) -> list[Tensor]:
    generator, place = torch.Generator().manual_seed(9), torch.arange(length)
    drawn = [torch.randperm(length, generator=generator) for _ in range(ORDERS)]
    swapped = torch.cat([place[:2].flip(0), place[2:]])
    return [*drawn, swapped, place.roll(1), place.flip(0)]


def _not_causal(subject: CheckSubject) -> str:
    if subject.causal:
        return ""
    return "declared causal: never" if subject.facts.causal == "never" else "not built causal"


@compares("outputs depend on no later token or mask", leak_of, excluded=_not_causal)
def causal_outputs(subject: CheckSubject) -> Comparisons:
    """Other tokens, and other masks, from position t on; outputs at real tokens before t as they
    were.
    """
    for mixer, x, keep, cuts, later in _causal_cases(subject):
        changes = {
            "changed": (torch.where(later[..., None], 3 * normal(x.shape, 5).to(x), x), keep)
        }
        if keep is not None:  # without a mask another kernel may run
            changes["padded"] = (x, keep & ~later)
        for mode in modes(mixer):
            expected = outputs(mixer, x, keep)
            for change, batch in changes.items():
                got = outputs(mixer, *batch)
                for sample, (cut, own) in enumerate(zip(cuts, _before(later, keep), strict=True)):
                    label = f"output before position {cut} of {x.shape[1]} in {mode}"
                    pair = got[sample][own], expected[sample][own]
                    yield f"{label}, later tokens {change}", *pair, expected
    yield from _at_many_cuts(subject)


def _at_many_cuts(subject: CheckSubject) -> Comparisons:
    """Other tokens from each position on, far down from every `EACH`th: chunks of most sizes begin
    at one; and at a length that the seed draws. In evaluation, without a mask.
    """
    drawn = random.Random(subject.seed).randrange(LONG, FAR)
    lengths = {drawn: drawn // SAMPLES + 1, FAR: EACH, LONG: 1}
    for length, apart in {subject.at_most(most): apart for most, apart in lengths.items()}.items():
        cuts = torch.arange(apart, length, apart)
        if not len(cuts):
            continue
        samples = min(len(cuts), SAMPLES)
        cuts = torch.cat([cuts, cuts[-1:].repeat(-len(cuts) % samples)])
        mixer, x = subject.build_for(length), subject.tokens(1, length).repeat(samples, 1, 1)
        expected = outputs(mixer, x)
        for some in cuts.split(samples):
            later = torch.arange(length) >= some[:, None]
            got = outputs(mixer, torch.where(later[..., None], 3 * x.flip(1), x))
            for cut, mine, wanted in zip(some.tolist(), got, expected, strict=True):
                label = f"output before position {cut} of {length}, later tokens changed"
                yield label, mine[:cut], wanted[:cut], expected


def _before(later: Tensor, keep: Tensor | None) -> Tensor:
    """Real tokens before the cuts, (B, L)."""
    return ~later if keep is None else keep & ~later


@compares(
    "gradients of outputs depend on no later token, and reach none",
    leak_of,
    "the largest gradient",
    excluded=_not_causal,
)
def causal_gradients(subject: CheckSubject) -> Comparisons:
    """In training, gradients of outputs before t: none into later tokens, and the same whatever
    stands there.
    """
    for mixer, x, keep, cuts, later in _causal_cases(subject, behind=False):
        other = torch.where(later[..., None], 3 * x.flip(1), x)
        watched = _before(later, keep)
        got, expected = (_input_gradient(mixer, tokens, keep, watched) for tokens in (other, x))
        for cut, after, mine, wanted in zip(cuts, later, got, expected, strict=True):
            name = f"gradient of outputs before position {cut} of {x.shape[1]} by"
            yield f"{name} later tokens", wanted[after], None, expected
            label = f"{name} earlier tokens, later ones changed"
            yield label, mine[~after], wanted[~after], expected


@compares(
    "weight gradients of outputs depend on no later token",
    of="the largest gradient",
    excluded=_not_causal,
)
def _causal_weight_gradients(subject: CheckSubject) -> Comparisons:
    for length, cuts in _lengths_with_cuts(subject, SHORT, FAR):
        mixer, x = subject.build_for(length).train(), subject.tokens(2, length)
        largest = _weight_gradients(mixer, x, length).values()
        for cut in cuts if length <= SHORT else cuts[-1:]:
            changed = torch.where((torch.arange(length) >= cut)[:, None], 3 * x.flip(1), x)
            got, expected = (_weight_gradients(mixer, tokens, cut) for tokens in (changed, x))
            label = f" of outputs before position {cut} of {length}, later tokens changed"
            yield from each(got, expected, label, scale=largest)


def _weight_gradients(mixer: TokenMixer, x: Tensor, cut: int) -> dict[str, Tensor]:
    """Of a weighted sum of the outputs before a cut."""
    found = gradients(weighted(call(afresh(mixer), x).out[:, :cut]).sum(), trainable(mixer))
    return {f"gradient by {name}": grad for name, grad in found.items()}


@compares("how many tokens follow does not matter", excluded=_not_causal)
def _causal_lengths(subject: CheckSubject) -> Comparisons:
    for length, cuts in _lengths_with_cuts(subject, LONG, FAR):
        mixer, x = subject.build(max_len=length), subject.tokens(2, length)
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            for cut in cuts:
                got = outputs(mixer, x[:, :cut].contiguous(), dropout=False)
                label = f"output of the first {cut} tokens alone against within {length} in {mode}"
                yield label, got, expected[:, :cut]


def _lengths_with_cuts(subject: CheckSubject, *lengths: int) -> Iterator[tuple[int, list[int]]]:
    """Lengths that the mixer takes, and the cuts of each."""
    for length, most in {subject.at_most(length): length for length in lengths[::-1]}.items():
        if cuts := [cut for cut in CUTS[most] if cut < length]:
            yield length, cuts


def _causal_cases(
    subject: CheckSubject, *, behind: bool = True
) -> Iterator[tuple[TokenMixer, Tensor, Tensor | None, list[int], Tensor]]:
    """A mixer, tokens of a sample for each cut, a mask (none, padding in front, also behind), cuts,
    and what is later.

    Every other sample has padding. Far down a sequence it stands in front only. Some stand in a
    later layer, one of a decoder and in float32, where what rounds may not leak, one with a prefix
    token.
    """
    for length, cuts in _lengths_with_cuts(subject, *CUTS):
        if length == LONG:
            mixer = subject.build_elsewhere(length, role="self")
        else:
            mixer = subject.build_for(length)
        x = subject.tokens(len(cuts), length)
        short = max(1, 2 * length // 3)
        mask = padded(length, [length if i % 2 else short for i in range(len(cuts))])
        masks = [mask, mask.flip(1)] if behind and length < FAR else [mask.flip(1)]
        later = torch.arange(length) >= torch.tensor(cuts)[:, None]
        for keep in (None, *masks):
            yield mixer, x, keep, cuts, later
        if SHORT < length <= LONG:
            prefixed = subject.build_elsewhere(length, role="self", num_prefix_tokens=1)
            yield prefixed, x, None, cuts, later
        if length <= SHORT and not subject.facts.leak:
            single = subject.build_elsewhere(length, dtype=torch.float32)
            yield single, x.float(), mask.flip(1), cuts, later


def _not_claimed(subject: CheckSubject) -> str:
    return "" if subject.facts.padding_invariant else "padding_invariant not claimed"


@compares(
    "outputs do not depend on what padding holds, left and right", leak_of, excluded=_not_claimed
)
def padding_content(subject: CheckSubject) -> Comparisons:
    """Loud noise in the padding, at fixed shape."""
    for mixer, x, side, keep in _padding_cases(subject):
        noisy = torch.where(keep[..., None], x, LOUD * normal(x.shape, 3).to(x))
        for mode in modes(mixer):
            got, expected = (outputs(mixer, tokens, keep)[keep] for tokens in (noisy, x))
            label = f"output at real tokens in {mode}, other content in the padding ({side})"
            yield label, got, expected


@compares(
    "gradients do not depend on what padding holds, and reach none",
    leak_of,
    "the largest gradient",
    excluded=_not_claimed,
)
def _padding_gradients(subject: CheckSubject) -> Comparisons:
    """In training."""
    for mixer, x, side, keep in _padding_cases(subject):
        other = torch.where(keep[..., None], x, LOUD * x.flip(1))
        expected, got = (_input_gradient(mixer, tokens, keep, keep) for tokens in (x, other))
        label = f"gradient of outputs at real tokens by padding ({side})"
        yield label, expected[~keep], None, expected
        label = f"gradient by real tokens, other content in the padding ({side})"
        yield label, got[keep], expected[keep]


@compares(
    "outputs do not depend on how much padding stands before or after",
    lambda subject: max(ROUNDING, subject.facts.leak),
    excluded=_not_claimed,
)
def padding_amount(subject: CheckSubject) -> Comparisons:
    """A sample alone against the same sample with padding before, after, and on both sides."""
    most, far = subject.at_most(MAX_LEN), subject.at_most(FAR)
    few = (1, subject.at_most(11) // 2 or 1, max(1, subject.at_most(LENGTH) - 8))
    for real in dict.fromkeys((*few, max(1, far - 90))):
        amounts = ((0, 1), (0, 7), (1, 0), (7, 0), (5, 3), (0, most - real), (most - real, 0))
        samples, longest = (2, most) if real in few else (1, far)
        mixer, x = subject.build(max_len=max(longest, most)), subject.tokens(samples, real)
        x = x * (LOUD if real == 1 else 1)
        for mode in settled_modes(mixer, x):
            expected = outputs(mixer, x, dropout=False)
            tried = amounts[4 * mixer.training :] if real in few else ((0, 60), (60, 30))
            for before, after in tried:
                if real + before + after > longest:
                    continue
                wide = nn.functional.pad(x, (0, 0, before, after), value=LOUD)
                keep = padded(wide.shape[1], [real] * samples, lead=[before] * samples)
                got = outputs(mixer, wide, keep, dropout=False)[:, before : before + real]
                label = f"output of {real} tokens with {before} padded before and {after} after"
                yield f"{label} in {mode}", got, expected
    mixer, x = subject.build_elsewhere(most, num_prefix_tokens=1), subject.tokens(2, most)
    real = (most + 1) // 2
    got = outputs(mixer, x, padded(most, [real] * 2))[:, :real]
    label = f"output of {real} tokens with {most - real} padded after, behind a prefix token"
    yield label, got, outputs(mixer, x[:, :real].contiguous())


def _padding_cases(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, str, Tensor]]:
    """A mixer, tokens of three samples, and their mask: padding behind, in front and on both
    sides; in a later layer, with a token in front that belongs to none, and in float32, where what
    rounds may not leak; also far down.
    """
    length, far = map(subject.at_most, (LENGTH, FAR))
    x, masks = subject.tokens(3, length), padding_masks(length)
    for side, keep in masks.items():
        yield subject.build(), x, side, keep
    elsewhere = subject.build_elsewhere
    behind, front = masks["right"], masks["left"]
    yield elsewhere(length, num_prefix_tokens=1), x, "right, behind a prefix token", behind
    if not subject.facts.leak:
        single = elsewhere(length, dtype=torch.float32)
        yield single, x.float(), "left, in float32 in a later layer", front
    if far > length:
        real = [max(1, tokens) for tokens in (far - 60, far - 100, far // 4)]
        keep = padded(far, real, lead=(0, far // 25, far // 3))
        yield subject.build(max_len=far), subject.tokens(3, far), f"{far} tokens", keep


def padding_masks(length: int) -> dict[str, Tensor]:
    """Three samples of different lengths, padded behind, in front, and on both sides."""
    real = (length, max(1, 2 * length // 3), max(1, length // 4))
    right = padded(length, real)
    both = padded(length, real, lead=[(length - tokens) // 2 for tokens in real])
    return {"right": right, "left": right.flip(1), "both sides": both}


def _input_gradient(mixer: nn.Module, x: Tensor, keep: Tensor | None, watched: Tensor) -> Tensor:
    """Gradient in training by tokens of a weighted sum of the outputs that are watched, (B, L)
    bool.
    """
    x = x.detach().clone().requires_grad_()
    out = call(afresh(mixer.train()), x, keep).out
    return gradients(weighted(out)[watched].sum(), {"tokens": x})["tokens"]
