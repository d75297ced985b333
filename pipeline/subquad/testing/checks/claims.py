"""Claims: permuting the tokens permutes the outputs, proven or refuted; a leak is no more than rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from subquad.testing.calls import outputs
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.measure import ROUNDING, difference
from subquad.testing.subject import CheckSubject


@shows("what is declared as leak is no more than rounding")
def _leak(subject: CheckSubject) -> Finding:
    if not 0 <= subject.facts.leak <= ROUNDING:
        raise CheckFailed(
            f"leak {subject.facts.leak:g} is declared, allowed 0 to {ROUNDING:g}: no rounding is as large"
        )
    return Finding(f"leak {subject.facts.leak:g}", {"declared": subject.facts.leak, "allowed": ROUNDING})


LENGTH, ORDERS = 17, 8
REFUTED = 1e-6
"""A permutation that moves an output by more than this part of the largest is no rounding."""


@shows("permuting tokens permutes outputs, as far as claimed")
def _permutation(subject: CheckSubject) -> Finding:
    """Several orders: random ones, a swap of neighbours, a cyclic shift and the reversal."""
    length = subject.at_most(LENGTH)
    mixer, x = subject.build(), subject.tokens(2, length)
    expected = outputs(mixer, x)
    worst = max(difference(outputs(mixer, x[:, order]), expected[:, order]) for order in _orders(length))
    claim = None if subject.causal and subject.facts.permutation_equivariant else subject.facts.permutation_equivariant
    figures = {"worst": worst, "claimed": claim}
    if claim is True and worst > ROUNDING:
        raise CheckFailed(
            f"claimed equivariant, but a permutation moves an output by {worst:.1e} of the largest, "
            f"allowed {ROUNDING:g}"
        )
    if claim is False and worst < REFUTED:
        raise CheckFailed(
            f"claimed not equivariant, but no permutation moved an output by more than {worst:.1e} of the largest"
        )
    word = "equivariant" if worst <= ROUNDING else "not equivariant"
    return Finding(f"{word}: moved by {worst:.1e}{'' if claim is not None else ', nothing claimed'}", figures)


def _orders(length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    drawn = [torch.randperm(length, generator=generator) for _ in range(ORDERS)]
    swapped = torch.arange(length)
    swapped[:2] = swapped[:2].flip(0)
    return [*drawn, swapped, torch.arange(length).roll(1), torch.arange(length).flip(0)]
