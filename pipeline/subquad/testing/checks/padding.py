"""Padding: neither what it holds nor how much of it stands before or after the real tokens has an influence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.testing.calls import flushed_right, input_gradient, outputs, padded
from subquad.testing.check import Finding, shows
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import CheckSubject

LENGTH = 21
LOUD = 10.0
"""Size of what stands in the padding, in standard deviations of a token."""


def _not_claimed(subject: CheckSubject) -> str:
    """Why padding invariance is not asked of a subject."""
    return "" if subject.facts.padding_invariant else "padding_invariant not claimed"


def padding_masks(length: int) -> dict[str, Tensor]:
    """Three samples of different lengths, padded behind, in front, and on both sides."""
    real = (length, max(1, 2 * length // 3), max(1, length // 4))
    both = padded(length, real, lead=[(length - n) // 2 for n in real])
    return {"right": padded(length, real), "left": flushed_right(length, real), "both sides": both}


@shows("outputs do not depend on what padding holds, left and right", excluded=_not_claimed)
def _padding_content(subject: CheckSubject) -> Finding:
    """Loud noise in the padding, at fixed shape."""
    meter = Meter(subject.facts.leak)
    length = subject.at_most(LENGTH)
    compare_content(meter, subject.build(), subject.tokens(3, length))
    return meter.finding()


def compare_content(meter: Meter, mixer: nn.Module, x: Tensor) -> None:
    """Outputs at real tokens with other numbers in the padding.

    Raises:
        CheckFailed: they differ.
    """
    noise = LOUD * torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    for side, keep in padding_masks(x.shape[1]).items():
        expected = outputs(mixer, x, keep)[keep]
        got = outputs(mixer, torch.where(keep[..., None], x, noise), keep)[keep]
        meter.compare(f"output at real tokens, other content in the padding ({side})", got, expected)


@shows("gradients do not depend on what padding holds, and reach none", excluded=_not_claimed)
def _padding_gradients(subject: CheckSubject) -> Finding:
    """Outputs at real tokens send no gradient into padding, and the same to real tokens whatever the padding holds."""
    length, meter = subject.at_most(LENGTH), Meter(subject.facts.leak, "the largest gradient")
    mixer, x = subject.build(), subject.tokens(3, length)
    for side, keep in padding_masks(length).items():
        other = torch.where(keep[..., None], x, LOUD * x.flip(1))
        expected, got = (input_gradient(mixer, one, keep, keep) for one in (x, other))
        meter.zero(f"gradient of outputs at real tokens by padding ({side})", expected[~keep], scale=expected)
        meter.compare(f"gradient by real tokens, other content in the padding ({side})", got[keep], expected[keep])
    return meter.finding()


@shows("outputs do not depend on how much padding stands before or after", excluded=_not_claimed)
def _padding_amount(subject: CheckSubject) -> Finding:
    """A sample alone against the same sample with padding before, after, and on both sides."""
    meter = Meter(max(ROUNDING, subject.facts.leak))
    for real in dict.fromkeys((1, subject.at_most(11) // 2 or 1, max(1, subject.at_most(LENGTH) - 8))):
        compare_amount(meter, subject.build(), subject.tokens(2, real), subject.at_most(64))
    return meter.finding()


def compare_amount(meter: Meter, mixer: nn.Module, x: Tensor, most: int) -> None:
    """Outputs at the real tokens `x` under several amounts of padding, up to `most` positions in all.

    Raises:
        CheckFailed: they differ from the outputs without padding.
    """
    real = x.shape[1]
    expected = outputs(mixer, x)
    for before, after in ((0, 1), (0, 7), (1, 0), (7, 0), (5, 3), (0, most - real), (most - real, 0)):
        if real + before + after > most:
            continue
        filling = LOUD * torch.ones(x.shape[0], 1, x.shape[2], dtype=x.dtype)
        wide = torch.cat([filling.expand(-1, before, -1), x, filling.expand(-1, after, -1)], 1)
        keep = padded(wide.shape[1], [real] * len(x), lead=before)
        got = outputs(mixer, wide, keep)[:, before : before + real]
        meter.compare(f"output of {real} tokens with {before} padded before and {after} after", got, expected)
