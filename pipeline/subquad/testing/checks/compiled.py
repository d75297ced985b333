"""torch.compile against eager execution."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.testing.calls import call, gradients, padded, total_of
from subquad.testing.check import Check, Finding
from subquad.testing.measure import ROUNDING, Meter, compare_all
from subquad.testing.subject import Subject

LENGTH = 13


def compiled(subject: Subject) -> Finding:
    """Outputs, extra losses and gradients, with a mask."""
    length, meter = subject.at_most(LENGTH), Meter(ROUNDING)
    mixer, x, keep = subject.build(), subject.tokens(2, length), padded(length, (length, (length + 1) // 2))
    torch._dynamo.reset()
    try:
        got = _results(torch.compile(mixer, backend=subject.compiler), x, keep)  # pyright: ignore[reportArgumentType]
    finally:
        torch._dynamo.reset()
    for mine, wanted in zip(got, _results(mixer, x, keep), strict=True):
        compare_all(meter, mine, wanted, f" compiled by {subject.compiler}")
    return meter.finding(subject.compiler)


def _results(mixer: nn.Module, x: Tensor, keep: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Output and extra losses, and gradients, by name."""
    x = x.clone().requires_grad_()
    result = call(mixer, x, keep)
    inputs = {"tokens": x, **{name: weight for name, weight in mixer.named_parameters() if weight.requires_grad}}
    grads = zip(inputs, gradients(total_of(result), list(inputs.values())), strict=True)
    values = {"output": result.out.detach(), **{f"loss {k!r}": v.detach() for k, v in result.losses.items()}}
    return values, {f"gradient by {name.removeprefix('_orig_mod.')}": grad for name, grad in grads}


CHECKS = (Check(name="compiled", shows="torch.compile gives the same outputs and gradients", run=compiled),)
