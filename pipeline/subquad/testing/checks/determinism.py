"""The same call gives the same numbers; nothing random is drawn in evaluation."""

from __future__ import annotations

import torch

from subquad.testing.calls import call, gradients, padded, total_of
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import Meter
from subquad.testing.subject import Subject

LENGTH = 33


def repeatable(subject: Subject) -> Finding:
    """Two calls in evaluation, from different states of the random generator, which they leave as it was."""
    length, meter = subject.at_most(LENGTH), Meter(0.0)
    mixer, x, keep = subject.build(), subject.tokens(2, length), padded(length, (length, length // 2))
    with torch.no_grad():
        first, second = (call(mixer, x, keep, seed=seed).out for seed in (0, 1))
        meter.compare("output of a second call in evaluation", second, first)
        before = torch.get_rng_state()
        mixer(x, keep=keep)
    if not torch.equal(before, torch.get_rng_state()):
        raise CheckFailed("the call draws random numbers in evaluation")
    return meter.finding()


def seeded(subject: Subject) -> Finding:
    """Two mixers built alike, in training mode with equal seeds: outputs, extra losses and gradients."""
    length, meter = subject.at_most(LENGTH), Meter(0.0)
    x, keep = subject.tokens(2, length), padded(length, (length, length // 2))
    first, second = (_trained(subject, x, keep) for _ in range(2))
    for name in first:
        meter.compare(f"{name} of a second mixer with equal seeds", second[name], first[name])
    return meter.finding()


def _trained(subject: Subject, x: torch.Tensor, keep: torch.Tensor) -> dict[str, torch.Tensor]:
    mixer = subject.build().train()
    result = call(mixer, x, keep, seed=4)
    named = {name: weight for name, weight in mixer.named_parameters() if weight.requires_grad}
    grads = gradients(total_of(result), list(named.values()))
    found = {"output": result.out.detach()} | {f"loss {name!r}": loss.detach() for name, loss in result.losses.items()}
    return found | {f"gradient by {name}": grad for name, grad in zip(named, grads, strict=True)}


CHECKS = (
    Check(name="determinism-eval", shows="calls in evaluation are equal and draw nothing random", run=repeatable),
    Check(name="determinism-train", shows="training steps with equal seeds are equal", run=seeded),
)
