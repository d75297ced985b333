"""Gradients against finite differences, by torch's gradcheck.

By one sample's tokens element by element; by all tokens and each weight along a random direction, since there are
thousands of them and a wrong element turns up in any direction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from subquad.nn import as_output
from subquad.testing.calls import padded
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.subject import Subject

LENGTH = 5
ABSOLUTE, RELATIVE, STEP = 1e-6, 1e-4, 1e-6

Function = Callable[..., tuple[Tensor, ...]]


def gradients(subject: Subject) -> Finding:
    """Outputs at real tokens and extra losses, by tokens and by weights, with padding."""
    length, mixer = subject.at_most(LENGTH), subject.build()
    keep = padded(length, (length, (length + 1) // 2))
    named = {name: weight.detach().clone() for name, weight in mixer.named_parameters() if weight.requires_grad}
    inputs = [one.requires_grad_() for one in (subject.tokens(2, length), *named.values())]

    def values(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        result = as_output(functional_call(mixer, dict(zip(named, given, strict=True)), (x,), {"keep": keep}))
        return tuple(one for one in (result.out[keep], *result.losses.values()) if one.requires_grad)

    if not values(*inputs):
        return Finding("nothing to differentiate: outputs are constant")
    sample = inputs[0][1:].detach().requires_grad_()
    _compare(lambda x: values(torch.cat([inputs[0][:1], x]), *inputs[1:]), [sample], ("the tokens",), fast=False)
    _compare(values, inputs, ("the tokens", *named), fast=True)
    return Finding(f"{sample.numel()} inputs one by one, {len(named)} weights along a direction", {"allowed": RELATIVE})


def _compare(function: Function, inputs: list[Tensor], names: tuple[str, ...], *, fast: bool) -> None:
    if not function(*inputs):
        return
    check = partial(torch.autograd.gradcheck, eps=STEP, atol=ABSOLUTE, rtol=RELATIVE, check_undefined_grad=False)
    try:
        check(function, inputs, fast_mode=fast)
    except GradcheckError as error:
        raise CheckFailed(_one_line(str(error), names)) from None


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


CHECKS = (Check(name="gradients", shows="gradients equal finite differences", run=gradients),)
