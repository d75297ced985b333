"""Where a mixer may stand: behind a class token, on a grid of image patches, and below another layer."""

from __future__ import annotations

from typing import Any

import torch

from subquad.errors import ConfigError
from subquad.nn import TokenMixer
from subquad.testing.calls import Chain, call, padded, passes
from subquad.testing.check import Finding, NotApplicable, shows
from subquad.testing.checks.batch import compare_batch
from subquad.testing.checks.causality import compare_gradients, compare_outputs
from subquad.testing.checks.padding import compare_amount, compare_content, padding_masks
from subquad.testing.measure import ROUNDING, Meter
from subquad.testing.subject import MAX_LEN, CheckSubject

GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


@shows("works with a class token in front")
def _class_token(subject: CheckSubject) -> Finding:
    length = subject.at_most(14)
    mixer = _built(subject, num_prefix_tokens=1)
    passes("class token in front", mixer, subject.tokens(2, length), None)
    passes(
        "class token in front, padded", mixer, subject.tokens(2, length), padded(length, (length, (length + 1) // 2))
    )
    return Finding(f"1 + {length - 1} tokens")


@shows("works on a grid of image patches with a class token")
def _image_grid(subject: CheckSubject) -> Finding:
    if (most := subject.at_most(MAX_LEN)) < MAX_LEN:
        raise NotApplicable(f"takes {most} positions, a grid of 7 x 9 needs {MAX_LEN}")
    mixer = _built(subject, num_prefix_tokens=1, grid=GRID)
    passes("image patches", mixer, subject.tokens(2, MAX_LEN), None)
    return Finding("1 + 7 x 9 tokens")


def _built(subject: CheckSubject, **site: Any) -> TokenMixer:
    try:
        return subject.build(**site)
    except ConfigError as error:
        raise NotApplicable(f"refuses such a place when built: {error}") from None


def _no_carry(subject: CheckSubject) -> str:
    """Why two layers are not checked together."""
    with torch.no_grad():
        carry = call(subject.build(), subject.tokens(2, subject.at_most(21))).carry
    return "" if carry is not None else "hands no carry on"


@shows("two layers with their carry keep the properties of one", excluded=_no_carry)
def _carry(subject: CheckSubject) -> Finding:
    """Two layers with their carry: finite, causal, padding invariant, samples apart, as far as claimed of one."""
    chain, length = Chain(subject), subject.at_most(21)
    x, meter = subject.tokens(3, length), Meter(subject.facts.leak)
    passes("two layers", chain, x, None)
    passes("two layers with padding", chain, x, padding_masks(length)["right"])
    compare_batch(meter, chain, x)
    tried = ["samples apart"]
    if subject.causal:
        compare_outputs(meter, chain, x[:2], tuple(range(1, length, 3)))
        compare_gradients(meter, chain, x[:2], tuple(range(1, length, 5)))
        tried.append("causal")
    if subject.facts.padding_invariant:
        compare_content(meter, chain, x)
        compare_amount(Meter(max(ROUNDING, subject.facts.leak)), chain, x[:, : max(1, length - 10)], length)
        tried.append("padding invariant")
    return meter.finding(f"two layers: {', '.join(tried)}")
