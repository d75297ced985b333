"""Gradients against finite differences."""

from __future__ import annotations

import re

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from subquad.nn import as_output
from subquad.testing.calls import padded
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.subject import Subject, tokens

WIDTH, LENGTH = 8, 5
ABSOLUTE, RELATIVE, STEP = 1e-6, 1e-4, 1e-6


def gradients(subject: Subject) -> Finding:
    """torch's gradcheck, every element of the Jacobian of outputs and extra losses by tokens and weights."""
    length = subject.at_most(LENGTH)
    mixer = subject.build(dim=WIDTH * subject.dim // 16, max_len=length)
    named = {name: weight.detach().clone() for name, weight in mixer.named_parameters() if weight.requires_grad}
    keep = padded(length, (length, (length + 1) // 2))
    x = tokens(2, length, WIDTH * subject.dim // 16)

    def values(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        result = as_output(functional_call(mixer, dict(zip(named, given, strict=True)), (x,), {"keep": keep}))
        return tuple(one for one in (result.out[keep], *result.losses.values()) if one.requires_grad)

    inputs = [one.requires_grad_() for one in (x, *named.values())]
    if not values(*inputs):
        return Finding("nothing to differentiate: outputs are constant")
    try:
        torch.autograd.gradcheck(values, inputs, eps=STEP, atol=ABSOLUTE, rtol=RELATIVE, check_undefined_grad=False)
    except GradcheckError as error:
        raise CheckFailed(_one_line(str(error), ("x", *named))) from None
    count = sum(one.numel() for one in inputs)
    return Finding(f"by {count} inputs and weights, to {RELATIVE:g}", {"inputs": count, "allowed": RELATIVE})


def _one_line(message: str, names: tuple[str, ...]) -> str:
    """gradcheck's message without its matrices, with names for numbers."""
    found = re.search(r"output (\d+) with respect to input (\d+)", message)
    if not found:
        return " ".join(message.split())[:300]
    output = "outputs" if found[1] == "0" else f"extra loss {found[1]}"
    return (
        f"gradient of the {output} by {names[int(found[2])]} is not that of finite differences, "
        f"allowed {RELATIVE:g} relative, {ABSOLUTE:g} absolute"
    )


CHECKS = (Check(name="gradients", shows="gradients equal finite differences, element by element", run=gradients),)
