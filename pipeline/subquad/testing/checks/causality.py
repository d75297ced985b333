"""Causality: nothing at a later position has an influence, neither on outputs nor on gradients.

Two lengths: a short one with every position, and one that chunked scans cut into pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from subquad.testing.calls import (
    call,
    flushed_right,
    gradients_of,
    input_gradient,
    outputs,
    padded,
    random_like,
    trainable,
)
from subquad.testing.check import Finding, shows
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import MAX_LEN, CheckSubject

SHORT, LONG = 9, 150
CUTS = (1, 2, 16, 33, 64, 65, 127, 128, 149)


def _not_causal(subject: CheckSubject) -> str:
    """Why causality is not asked of a subject."""
    if subject.causal:
        return ""
    return "declared causal: never" if subject.facts.causal == "never" else "not built causal"


@shows("outputs depend on no later token or mask", excluded=_not_causal)
def _causal_outputs(subject: CheckSubject) -> Finding:
    """Other tokens, and other masks, from position t on; outputs before t as they were."""
    meter = Meter(subject.facts.leak)
    for length, cuts in _cuts(subject):
        mixer = subject.build(max_len=max(length, MAX_LEN))
        compare_outputs(meter, mixer, subject.tokens(2, length), cuts)
    return meter.finding()


def compare_outputs(meter: Meter, mixer: nn.Module, x: Tensor, cuts: tuple[int, ...]) -> None:
    """Perturb what stands at and after each cut; outputs at real tokens before it must not change.

    Raises:
        CheckFailed: they do.
    """
    length = x.shape[1]
    other = 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    for keep in _masks(length):
        expected = outputs(mixer, x, keep)
        for cut in cuts:
            later = torch.arange(length) >= cut
            got = outputs(mixer, torch.where(later[:, None], other, x), keep)
            _compare_before(meter, f"output before position {cut}, later tokens changed", got, expected, keep, cut)
            if keep is not None:  # without a mask another kernel may run
                got = outputs(mixer, x, keep & ~later)
                _compare_before(meter, f"output before position {cut}, later tokens padded", got, expected, keep, cut)


@shows("gradients of outputs depend on no later token, and reach none", excluded=_not_causal)
def _causal_gradients(subject: CheckSubject) -> Finding:
    """Gradients of outputs before t: none into later tokens, and the same whatever stands there."""
    meter = Meter(subject.facts.leak, "the largest gradient")
    for length, cuts in _cuts(subject):
        mixer = subject.build(max_len=max(length, MAX_LEN))
        compare_gradients(meter, mixer, subject.tokens(2, length), cuts[:: 1 if length <= SHORT else 2])
    return meter.finding()


def compare_gradients(meter: Meter, mixer: nn.Module, x: Tensor, cuts: tuple[int, ...]) -> None:
    """As `compare_outputs`, for the gradients of the outputs before each cut by tokens and weights.

    Raises:
        CheckFailed: something later has an influence.
    """
    length = x.shape[1]
    for keep in _masks(length)[::2]:
        real = torch.ones(x.shape[:2]).bool() if keep is None else keep
        largest = input_gradient(mixer, x, keep, real)
        for cut in cuts:
            later = torch.arange(length) >= cut
            other = torch.where(later[:, None], 3 * x.flip(1), x)
            got, expected = (input_gradient(mixer, one, keep, real & ~later) for one in (other, x))
            name = f"gradient of outputs before position {cut}"
            meter.zero(f"{name} by later tokens", expected[:, cut:], scale=largest)
            meter.compare(
                f"{name} by earlier tokens, later ones changed", got[:, :cut], expected[:, :cut], scale=largest
            )


@shows("weight gradients of outputs depend on no later token", excluded=_not_causal)
def _causal_weight_gradients(subject: CheckSubject) -> Finding:
    """Gradients by the weights of outputs before t are the same whatever stands later."""
    length = subject.at_most(SHORT)
    mixer, x, meter = subject.build(), subject.tokens(2, length), Meter(ROUNDING, "the largest gradient")
    largest = torch.stack(
        [grad.abs().max() for grad in _weight_gradients(mixer, x, length).values()] or [torch.ones(())]
    )
    for cut in range(1, length):
        changed = torch.where((torch.arange(length) >= cut)[:, None], 3 * x.flip(1), x)
        got, expected = (_weight_gradients(mixer, one, cut) for one in (changed, x))
        for name in expected:
            label = f"gradient by {name} of outputs before position {cut}, later tokens changed"
            meter.compare(label, got[name], expected[name], scale=largest)
    return meter.finding()


def _weight_gradients(mixer: nn.Module, x: Tensor, cut: int) -> dict[str, Tensor]:
    named = trainable(mixer)
    out = call(mixer, x).out[:, :cut]
    return dict(zip(named, gradients_of((out * random_like(out)).sum(), list(named.values())), strict=True))


@shows("how many tokens follow does not matter", excluded=_not_causal)
def _causal_lengths(subject: CheckSubject) -> Finding:
    length = subject.at_most(LONG)
    mixer, x, meter = subject.build(max_len=length), subject.tokens(2, length), Meter(ROUNDING)
    expected = outputs(mixer, x)
    for cut in (cut for cut in CUTS if cut < length):
        got = outputs(mixer, x[:, :cut].contiguous())
        meter.compare(f"output of the first {cut} tokens alone against within {length}", got, expected[:, :cut])
    return meter.finding()


def _cuts(subject: CheckSubject) -> Iterator[tuple[int, tuple[int, ...]]]:
    for length in dict.fromkeys(map(subject.at_most, (SHORT, LONG))):
        yield length, tuple(range(1, length)) if length <= SHORT else tuple(cut for cut in CUTS if cut < length)


def _masks(length: int) -> tuple[Tensor | None, ...]:
    """No mask, padding behind and padding in front, for two samples."""
    real = (length, max(1, 2 * length // 3))
    return None, padded(length, real), flushed_right(length, real)


def _compare_before(meter: Meter, what: str, got: Tensor, expected: Tensor, keep: Tensor | None, cut: int) -> None:
    real = torch.ones(got.shape[:2]).bool() if keep is None else keep.clone()
    real[:, cut:] = False
    scale = torch.stack([got[real].abs().max(), expected.abs().max()]) if real.any() else expected
    meter.compare(what, got[real], expected[real], scale=scale)
