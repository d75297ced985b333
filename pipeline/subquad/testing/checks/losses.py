"""Extra losses: one finite, differentiable value a sample, named with its weight."""

from __future__ import annotations

import torch

from subquad.testing.calls import call, padded
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.checks.batch import no_losses
from subquad.testing.measure import finite
from subquad.testing.subject import Subject

LENGTH = 13


def losses(subject: Subject) -> Finding:
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
            inputs = [x, *(weight for weight in mixer.parameters() if weight.requires_grad)]
            if not value.requires_grad or not _any(torch.autograd.grad(value.sum(), inputs, allow_unused=True)):
                raise CheckFailed(f"loss {name!r} has no gradient by tokens or weights")
    return Finding(", ".join(f"{name} x {weight:g}" for name, weight in mixer.loss_weights.items()))


def _any(grads: tuple[torch.Tensor | None, ...]) -> bool:
    return any(grad is not None and bool(grad.any()) for grad in grads)


CHECKS = (
    Check(
        name="losses",
        shows="extra losses are finite, differentiable, one a sample, and have weights",
        run=losses,
        excluded=no_losses,
    ),
)
