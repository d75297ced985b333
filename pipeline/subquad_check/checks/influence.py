"""What must have no influence: later positions; and the order of the tokens, as far as claimed.

They are replaced, and outputs have to stay as they were, but for the declared `leak`; gradients
must not reach them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from subquad.nn import TokenMixer
from subquad_check.calls import (
    Form,
    Mask,
    Tensors,
    afresh,
    alike,
    beginning,
    call,
    changed,
    gradients,
    input_gradient,
    modes,
    outputs,
    padded,
    trainable,
    weighted,
)
from subquad_check.cases import compares, shows
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    Meter,
    each,
    within,
)
from subquad_check.subject import FAR, MAX_LEN, CheckSubject

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
"""So far apart are further cuts far down a sequence: chunks of most sizes begin at one."""
SAMPLES = 17
"""Of a batch with a cut in each."""
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
    meter = Meter(math.inf)
    meter.compare_all(_permuted(subject))
    worst = meter.worst
    allowed = subject.at_least(ROUNDING)
    claim = subject.facts.permutation_equivariant
    if subject.causal and claim:
        claim = None
    if claim is True and worst > allowed:
        raise CheckFailed(
            "claimed equivariant, but a permutation moves an output "
            f"by {worst:.1e} of the largest, allowed {allowed:g}"
        )
    if claim is False and worst < REFUTED:
        raise CheckFailed(
            "claimed not equivariant, but no permutation moved an output "
            f"by more than {worst:.1e} of the largest"
        )
    words = f"{'' if worst <= allowed else 'not '}equivariant: moved by {worst:.1e}"
    if claim is None:
        words += ", nothing claimed"
    return Finding(words, {"worst": worst, "claimed": claim})


def _permuted(subject: CheckSubject) -> Iterator[Comparison]:
    for length in subject.lengths(17, FAR):
        drawn = torch.Generator().manual_seed(9)
        orders = [torch.randperm(length, generator=drawn) for _ in range(ORDERS)]
        place = torch.arange(length)
        swap = torch.cat([place[:2].flip(0), place[2:]])
        orders += [swap, place.roll(1), place.flip(0)]
        x = subject.tokens(2, length)
        if length > MAX_LEN:
            orders = orders[-1:]
            x = x[:1]
        x[:, ::2] = x[:, :1]  # equal tokens, between which no order may choose
        forms = {
            f"in order {i}": Form(x[:, order], plain=(slice(None), order))
            for i, order in enumerate(orders)
        }
        yield from alike(subject.build_for(length), x, None, forms, dropout=False)


def _not_causal(subject: CheckSubject) -> str:
    if subject.causal:
        return ""
    if subject.facts.causal == "never":
        return "declared causal: never"
    return "not built causal"


@compares("outputs depend on no later token or mask", 0.0, leaks=True, excluded=_not_causal)
def causal_outputs(subject: CheckSubject) -> Comparisons:
    """Other tokens, and other masks, from position t on; outputs at real tokens before t as they
    were. In evaluation, without a mask, also from each position on, from every `EACH`th far down,
    and at a length that the seed draws.
    """
    for mixer, x, keep, cuts in _causal_cases(subject):
        for mode in modes(mixer):
            yield from before_cuts(mixer, x, keep, cuts, outputs(mixer, x, keep), mode)
    drawn = random.Random(subject.seed).randrange(LONG, FAR)
    for longest, distance in {drawn: drawn // SAMPLES + 1, FAR: EACH, LONG: 1}.items():
        length = subject.at_most(longest)
        mixer = subject.build_for(length)
        x = subject.tokens(1, length)
        cuts = list(range(distance, length, distance))
        if not cuts:
            continue
        samples = min(SAMPLES, len(cuts))
        batch = x.repeat(samples, 1, 1)
        expected = outputs(mixer, batch)
        for first in range(0, len(cuts), SAMPLES):
            start = min(first, len(cuts) - samples)
            yield from before_cuts(
                mixer, batch, None, cuts[start : start + samples], expected, "evaluation"
            )


def before_cuts(
    mixer: TokenMixer, x: Tensor, keep: Mask, cuts: Sequence[int], expected: Tensor, mode: str
) -> Iterator[Comparison]:
    """Outputs before a cut in each sample, where later tokens change and where they are padded,
    against what is expected: the outputs for `x`.
    """
    later = _later(x, cuts)
    before = _before(later, keep)
    changes = {"changed": (changed(x, later), keep)}
    if keep is not None:  # without a mask another kernel may run
        changes["padded"] = (x, before)
    for change, batch in changes.items():
        out = outputs(mixer, *batch)
        for sample, cut in enumerate(cuts):
            own = before[sample]
            yield (
                f"output before position {cut} of {x.shape[1]} in {mode}, later tokens {change}",
                out[sample][own],
                expected[sample][own],
                expected,
            )


def _later(x: Tensor, cuts: Sequence[int]) -> Tensor:
    """What is behind the cut of each sample, (B, L)."""
    return torch.arange(x.shape[1]) >= torch.tensor(cuts)[:, None]


def _before(later: Tensor, keep: Mask) -> Tensor:
    """Real tokens before the cuts, (B, L)."""
    before = ~later
    return before if keep is None else keep & before


@compares(
    "gradients of outputs depend on no later token, and reach none",
    0.0,
    leaks=True,
    excluded=_not_causal,
)
def causal_gradients(subject: CheckSubject) -> Comparisons:
    """In training, gradients of outputs before t: none into later tokens, and the same whatever
    stands there; those by weights, too, but for rounding.
    """
    for mixer, x, keep, cuts in _causal_cases(subject, behind=False):
        later = _later(x, cuts)
        watched = _before(later, keep)
        expected = input_gradient(mixer, x, keep, watched)
        got = input_gradient(mixer, changed(x, later), keep, watched)
        for sample, cut in enumerate(cuts):
            name = f"gradient of outputs before position {cut} of {x.shape[1]} by"
            whole = expected[sample]
            yield f"{name} later tokens", whole[cut:], None, expected
            yield (
                f"{name} earlier tokens, later ones changed",
                got[sample, :cut],
                whole[:cut],
                expected,
            )
    for length, cuts in _lengths_with_cuts(subject, SHORT, FAR):
        mixer = subject.build_for(length).train()
        x = subject.tokens(2, length)
        scale = _weight_gradients(mixer, x, length)
        for cut in cuts if length <= SHORT else cuts[-1:]:
            by_weights = each(
                _weight_gradients(mixer, changed(x, _later(x, (cut, cut))), cut),
                _weight_gradients(mixer, x, cut),
                f" of outputs before position {cut} of {length}, later tokens changed",
                scale=scale,
            )
            yield from within(subject.at_least(ROUNDING), by_weights)


def _weight_gradients(mixer: TokenMixer, x: Tensor, cut: int) -> Tensors:
    """Of a weighted sum of the outputs before a cut."""
    value = weighted(call(afresh(mixer), x).out[:, :cut]).sum()
    return gradients(value, trainable(mixer))


@compares("how many tokens follow does not matter", excluded=_not_causal)
def _causal_lengths(subject: CheckSubject) -> Comparisons:
    for length, cuts in _lengths_with_cuts(subject, LONG, FAR):
        x = subject.tokens(2, length)
        forms = {}
        for cut in cuts:
            forms[f"of the first {cut} tokens alone against within {length}"] = Form(
                beginning(x, cut), plain=(slice(None), slice(cut))
            )
        yield from alike(subject.build(max_len=length), x, None, forms, dropout=False)


def _lengths_with_cuts(subject: CheckSubject, *lengths: int) -> Iterator[tuple[int, list[int]]]:
    """Lengths that the mixer takes, and the cuts of each."""
    for length, longest in {subject.at_most(length): length for length in lengths[::-1]}.items():
        cuts = [cut for cut in CUTS[longest] if cut < length]
        if cuts:
            yield length, cuts


def _causal_cases(
    subject: CheckSubject, *, behind: bool = True
) -> Iterator[tuple[TokenMixer, Tensor, Tensor | None, list[int]]]:
    """A mixer, tokens of a sample for each cut, a mask (none, padding in front, also behind), and
    cuts.

    Every other sample has padding. Far down a sequence it stands in front only. Some stand in a
    later layer, one of a decoder and in float32, where what rounds may not leak, one with a prefix
    token.
    """
    for length, cuts in _lengths_with_cuts(subject, *CUTS):
        if length == LONG:
            mixer = subject.build_elsewhere(length, role="self")
        else:
            mixer = subject.build_for(length)
        samples = len(cuts)
        x = subject.tokens(samples, length)
        real = [max(1, 2 * length // 3), length] * samples
        back = padded(length, real[:samples])
        front = back.flip(1)
        yield mixer, x, None, cuts
        if behind and length < FAR:
            yield mixer, x, back, cuts
        yield mixer, x, front, cuts
        if SHORT < length <= LONG:
            yield subject.build_elsewhere(length, role="self", num_prefix_tokens=3), x, None, cuts
        if length <= SHORT and not subject.facts.leak:
            yield subject.build_elsewhere(length, dtype=torch.float32), x.float(), front, cuts
