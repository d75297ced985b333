"""Gradients and random numbers: gradients are those of the outputs, and the same call gives the
same numbers.

Gradients are compared with finite differences along random directions of all tokens and weights:
there are thousands of them, and a wrong element turns up in any direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from subquad.nn import TokenMixer
from subquad_check.calls import (
    Mask,
    Tensors,
    afresh,
    backward,
    call,
    settled_modes,
    slope,
    trainable,
    values_and_gradients,
)
from subquad_check.cases import compares, shows
from subquad_check.meter import ROUNDING, CheckFailed, Comparisons, Finding, each
from subquad_check.subject import FAR, CheckSubject

SHORT = 5
"""Up to so many tokens each input is moved alone, which also finds a small gradient that is off."""
LENGTH = 33
LENGTHS = (SHORT, LENGTH, 150, 600, FAR)
"""Short, behind the first chunks of scans and routers, and far down."""
PAIRED = 150
"""Up to so many tokens there are two samples, of which one has padding."""
DIRECTIONS = 3
FEWEST = 2
"""Of these have to say that a gradient is wrong: one alone may cross a kink."""

Values = Callable[[], Mapping[str, Tensor]]
"""What a mixer returns, by name, of its inputs as they are."""


class Accuracy(NamedTuple):
    """What finite differences are taken with, and how far a gradient may be off."""

    steps: tuple[float, ...]
    relative: float
    absolute: float
    note: str = ""

    def near(self, got: float, expected: float) -> bool:
        """Whether two derivatives count as equal."""
        return abs(got - expected) <= self.absolute + self.relative * abs(expected)


_DOUBLE = Accuracy((1e-6, 1e-5, 1e-7), 1e-4, 1e-6)
_SINGLE = Accuracy(
    (1e-2, 3e-2, 3e-3),
    1e-2,
    1e-3,
    ", with steps for float32, in which it computes some of a float64 call",
)


def _accuracy_of(subject: CheckSubject) -> Accuracy:
    """What the subject's gradients are compared with."""
    return _SINGLE if subject.is_single else _DOUBLE


@shows("gradients equal finite differences")
def gradients_(subject: CheckSubject) -> Finding:
    """Outputs at real tokens and extra losses, by tokens and by weights, with padding; in both
    modes.

    Raises:
        CheckFailed: a gradient is not that of finite differences.
    """
    rough = []
    for mixer, x, keep in _places(subject):
        rough += check_gradients(subject, mixer, x, keep, f"{x.shape[1]} tokens")
    words = f"by tokens and weights, {', '.join(map(str, subject.lengths(*LENGTHS)))} tokens"
    words += _accuracy_of(subject).note
    if rough:
        words += f"; too rough to be judged: {', '.join(rough)}"
    return Finding(words, {"allowed": _accuracy_of(subject).relative})


def check_gradients(
    subject: CheckSubject, mixer: TokenMixer, x: Tensor, keep: Mask, label: str
) -> list[str]:
    """Those of finite differences, by tokens and weights, in both modes.

    Args:
        label: for messages.

    Returns:
        where some value is too rough to be judged.

    Raises:
        CheckFailed: a gradient is not that of finite differences.
    """
    accuracy = _accuracy_of(subject)
    tokens = x.clone().requires_grad_()
    inputs = {"the tokens": tokens, **trainable(mixer)}
    rough = []
    for mode in settled_modes(mixer, x):
        where = f"{label} in {mode}"
        values = partial(_values, mixer, tokens, keep)
        together = x.shape[1] > SHORT
        if not _compare_gradients(values, inputs, accuracy, where, together=together):
            rough.append(where)
    return rough


def _places(subject: CheckSubject) -> Iterator[tuple[TokenMixer, Tensor, Tensor | None]]:
    """Mixers, tokens and masks: two samples of which one has padding, or a long one alone; also in
    a later layer, behind a prefix token.
    """
    for length in subject.lengths(*LENGTHS):
        tokens, keep = subject.pair(length)
        if length == PAIRED:
            mixer = subject.build_elsewhere(length, num_prefix_tokens=1)
        else:
            mixer = subject.build_for(length)
        yield (mixer, tokens, keep) if length <= PAIRED else (mixer, tokens[:1], None)


def _values(mixer: TokenMixer, tokens: Tensor, keep: Mask) -> Tensors:
    """Outputs at real tokens and extra losses; in evaluation those that have a gradient."""
    result = call(afresh(mixer), tokens, keep)
    out = result.out
    if keep is not None:
        out = out[keep]
    found = {"outputs": out}
    for name, loss in result.losses.items():
        found[f"extra loss {name!r}"] = loss
    if mixer.training:
        return found
    return {name: value for name, value in found.items() if value.requires_grad}


def _compare_gradients(
    values: Values,
    inputs: Mapping[str, Tensor],
    accuracy: Accuracy,
    where: str,
    *,
    together: bool,
) -> bool:
    """Derivatives of each value, summed with random weights, by all inputs.

    Args:
        where: for messages.
        together: move all inputs at once, and each alone only where that is wrong.

    Returns:
        whether every value is smooth enough to be judged.

    Raises:
        CheckFailed: a derivative is not that of finite differences.
    """
    drawn = torch.Generator().manual_seed(0)
    alone = [{by: tensor} for by, tensor in inputs.items()]
    judges = {}
    for name, value in values().items():
        weight = _random_like(value, drawn)
        summed = partial(_summed, values, name, weight)
        judges[name] = partial(_judged, summed, backward(value, inputs, weight), accuracy, drawn)
    judged = True
    for name, judge in judges.items():
        for group in [inputs] if together else alone:
            agrees, faults = judge(group)
            judged &= agrees
            if agrees or len(faults) < FEWEST:
                continue
            by = "all inputs"
            for single in alone:
                agrees, apart = judge(single)
                if not agrees and len(apart) >= FEWEST:
                    faults = apart
                    (by,) = single
                    break
            got, measured = faults[0]
            raise CheckFailed(
                f"gradient of the {name} by {by}, {where}: {got:.7g} along a direction, "
                f"by finite differences {measured:.7g}, "
                f"allowed {accuracy.relative:g} relative, {accuracy.absolute:g} absolute"
            )
    return judged


def _random_like(tensor: Tensor, drawn: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=drawn, dtype=tensor.dtype)


def _summed(values: Values, name: str, weight: Tensor) -> float:
    return (weight * values()[name]).sum().item()


def _judged(
    function: Callable[[], float],
    grads: Mapping[str, Tensor | None],
    accuracy: Accuracy,
    drawn: torch.Generator,
    inputs: Mapping[str, Tensor],
) -> tuple[bool, list[tuple[float, float]]]:
    """Whether the derivative along one of several directions is that by finite differences, with
    one of several steps; and those that are not, with the others. Where two steps give two
    derivatives nobody can say: a choice, such as of a bucket, lies between.

    The part of a direction by each input has the length 1, or less where more would hide the
    others. It is half the gradient's own: across it a random one may see nothing.
    """
    faults = []
    for _ in range(DIRECTIONS):
        directions = []
        got = 0.0
        for by, tensor in inputs.items():
            direction = _unit(_random_like(tensor, drawn))
            own = 0.0
            grad = grads[by]
            if grad is not None:
                direction = _unit(direction + _unit(grad))
                own = (grad.conj() * direction).sum().real.item()
            shrunk = max(1.0, own)
            directions.append(direction / shrunk)
            got += own / shrunk
        slopes = []
        for step in accuracy.steps:
            slopes.append(slope(function, list(inputs.values()), directions, step))
            if accuracy.near(got, slopes[-1]):
                return True, faults
        # a step below float32's rounding moves nothing
        moving = [measured for measured in slopes if measured] or slopes
        if any(accuracy.near(first, second) for first, second in pairwise(moving)):
            faults.append((got, moving[0]))
    return False, faults


def _unit(tensor: Tensor) -> Tensor:
    """Of the length 1; zeros stay zeros."""
    return tensor / tensor.norm().clamp_min(torch.finfo(tensor.dtype).tiny)


@compares("calls in evaluation and training steps with equal seeds are equal", 0.0)
def _determinism(subject: CheckSubject) -> Comparisons:
    """Calls in evaluation, from different states of the random generator, which they leave as it
    was, and with and without gradients; mixers built alike, in training with equal seeds: outputs,
    extra losses and gradients, several times.
    """
    for length, count in {subject.at_most(LENGTH): 3, subject.at_most(FAR): 1}.items():
        x, keep = subject.pair(length)
        mixer = subject.build_for(length)
        with torch.no_grad():
            first = call(mixer, x, keep).out
            yield "output of a second call in evaluation", call(mixer, x, keep, seed=1).out, first
            before = torch.get_rng_state()
            mixer(x, keep=keep)
        if not torch.equal(before, torch.get_rng_state()):
            raise CheckFailed("the call draws random numbers in evaluation")
        tracked = call(mixer, x.clone().requires_grad_(), keep).out.detach()
        yield (
            "output in evaluation without gradients against with them",
            first[keep],
            tracked[keep],
            tracked,
            subject.at_least(ROUNDING),
        )
        pair = subject.pair(length)
        first, *others = (
            values_and_gradients(subject.build_for(length).train(), *pair, seed=4)
            for _ in range(1 + count)
        )
        for other in others:
            yield from each(other, first, " of another mixer with equal seeds")
