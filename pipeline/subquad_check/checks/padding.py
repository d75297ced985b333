"""Padding must have no influence, where that is claimed: not what it holds, and not how much of it
stands where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad_check.calls import (
    Form,
    Tensors,
    changed,
    input_gradient,
    modes,
    outputs,
    padded,
    same,
)
from subquad_check.cases import compares, leak_of
from subquad_check.meter import ROUNDING, Comparison, Comparisons, finite
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
    leak_of,
    excluded=_not_claimed,
)
def padding_content(subject: CheckSubject) -> Comparisons:
    """Loud noise in the padding, at fixed shape, and so loud that its exponentials overflow; in
    training also gradients.
    """
    for mixer, x, side, keep in _padding_cases(subject):
        about = f", other content in the padding ({side})"
        yield from same(mixer, x, keep, other_padding(x, keep), about=about)
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
    lambda subject: max(ROUNDING, subject.facts.leak),
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
    return same(mixer, x, None, forms, about=about, dropout=False)


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
