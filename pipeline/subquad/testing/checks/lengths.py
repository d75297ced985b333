"""Lengths: one token, odd, prime, the longest, and one more than the longest."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import MixerOutput, TokenMixer
from subquad.testing.calls import autocast_call, call, gradients, outputs, padded, total_of
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import Meter, finite
from subquad.testing.subject import MAX_LEN, Subject

LENGTHS = (1, 2, 3, 7, 31, 33, 63, MAX_LEN)


def lengths(subject: Subject) -> Finding:
    """Outputs of the right shape, finite outputs, losses and gradients, with and without padding."""
    mixer = subject.build()
    tried = tuple(dict.fromkeys(map(subject.at_most, LENGTHS)))
    for length in tried:
        x = subject.tokens(2, length)
        for keep in (None, padded(length, (length, (length + 1) // 2))):
            passes(f"length {length}", mixer, x, keep)
    return Finding(f"lengths {', '.join(map(str, tried))}")


def passes(
    what: str, mixer: TokenMixer, x: Tensor, keep: Tensor | None, run: Callable[..., MixerOutput] = call
) -> None:
    """One forward and backward pass.

    Raises:
        CheckFailed: the output has another shape, or something is not finite.
    """
    x = x.clone().requires_grad_()
    result = run(mixer, x, keep)
    if result.out.shape != x.shape:
        raise CheckFailed(f"{what}: output {tuple(result.out.shape)}, expected {tuple(x.shape)}")
    finite(f"{what}: output and losses", result.out, *result.losses.values())
    weights = [weight for weight in mixer.parameters() if weight.requires_grad]
    finite(f"{what}: gradients", *gradients(total_of(result), [x, *weights]))


def max_length(subject: Subject) -> Finding:
    """A bound mixer refuses one token more than it was built for; an unbound one takes three times as many."""
    if subject.facts.max_length is None:
        length = 3 * MAX_LEN + 1
        passes(f"built for {MAX_LEN}, length {length}", subject.build(), subject.tokens(2, length), None)
        return Finding(f"unbound: built for {MAX_LEN}, takes {length}")
    most = subject.at_most(MAX_LEN)
    mixer = subject.build(max_len=most)
    try:
        outputs(mixer, subject.tokens(1, most + 1))
    except PluginError as error:
        message = str(error)
    else:
        raise CheckFailed(f"claimed bound to {most} positions, but {most + 1} were taken without a PluginError")
    if not {str(most), str(most + 1)} <= set(re.findall(r"\d+", message)) or "\n" in message:
        raise CheckFailed(f"the refusal of {most + 1} positions must name {most + 1} and {most} in one line: {message}")
    return Finding(f"{most + 1} positions refused: {message}")


def all_padded(subject: Subject) -> Finding:
    """A sample without a real token: all finite, the other samples as they were; also a batch of nothing else."""
    length = subject.at_most(13)
    for dtype in (torch.float64, torch.float32):
        mixer, x = subject.build(dtype=dtype), subject.tokens(3, length, dtype=dtype)
        keep = padded(length, (length, 0, (length + 1) // 2))
        passes("a sample without real tokens", mixer, x, keep)
        passes("a batch without real tokens", mixer, x, torch.zeros_like(keep))
    passes("a sample without real tokens under bf16 autocast", mixer, x, keep, autocast_call)
    return _others(subject).finding("finite outputs, losses and gradients")


def _others(subject: Subject) -> Meter:
    """Outputs of the samples beside one that loses all its real tokens.

    Raises:
        CheckFailed: they change.
    """
    length, meter = subject.at_most(13), Meter(subject.facts.leak)
    mixer, x = subject.build(), subject.tokens(3, length)
    keep, fewer = (padded(length, (length, n, (length + 1) // 2)) for n in (length - 1, 0))
    expected, got = outputs(mixer, x, keep), outputs(mixer, x, fewer)
    for own in (0, 2):
        label = f"output of sample {own} at real tokens beside a sample without any"
        meter.compare(label, got[own][keep[own]], expected[own][keep[own]])
    return meter


CHECKS = (
    Check(name="lengths", shows="one token, odd, prime and longest sequences work", run=lengths),
    Check(
        name="max-length",
        shows="longer than what it is bound to is refused in words; unbound takes more",
        run=max_length,
    ),
    Check(
        name="all-padded", shows="a sample without real tokens is finite and leaves the others alone", run=all_padded
    ),
)
