"""What a layer hands to the next: two layers together still have the properties of one."""

from __future__ import annotations

import torch

from subquad.testing.calls import Chain, call
from subquad.testing.check import Check, Finding
from subquad.testing.checks import batch, causality, padding
from subquad.testing.checks.lengths import passes
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import Subject

LENGTH = 21


def no_carry(subject: Subject) -> str:
    """Why two layers are not checked together."""
    with torch.no_grad():
        carry = call(subject.build(), subject.tokens(2, subject.at_most(LENGTH))).carry
    return "" if carry is not None else "hands no carry on"


def carry(subject: Subject) -> Finding:
    """Two layers with their carry: finite, causal, padding invariant, samples apart, as far as claimed of one."""
    chain, length = Chain(subject), subject.at_most(LENGTH)
    x, meter = subject.tokens(3, length), Meter(subject.facts.leak)
    passes("two layers", chain, x, None)
    passes("two layers with padding", chain, x, padding.masks(length)["right"])
    batch.compare_batch(meter, chain, x)
    tried = ["samples apart"]
    if subject.causal:
        causality.compare_outputs(meter, chain, x[:2], tuple(range(1, length, 3)))
        causality.compare_gradients(meter, chain, x[:2], tuple(range(1, length, 5)))
        tried.append("causal")
    if subject.facts.padding_invariant:
        padding.compare_content(meter, chain, x)
        padding.compare_amount(Meter(max(ROUNDING, subject.facts.leak)), chain, x[:, : max(1, length - 10)], length)
        tried.append("padding invariant")
    return meter.finding(f"two layers: {', '.join(tried)}")


CHECKS = (
    Check(name="carry", shows="two layers with their carry keep the properties of one", run=carry, excluded=no_carry),
)
