"""Tensors that are not contiguous: transposed, every second element, expanded; also as incoming gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from subquad.nn import TokenMixer
from subquad.testing.calls import call, outputs, padded, weights
from subquad.testing.check import Check, Finding
from subquad.testing.measure import FEW_ULP, Meter, compare_all
from subquad.testing.subject import Subject

LENGTH = 13


def strides(subject: Subject) -> Finding:
    """The same numbers in other layouts: outputs and gradients as for contiguous ones, to a few roundings."""
    length = subject.at_most(LENGTH)
    mixer, x, keep = subject.build(), subject.tokens(2, length), padded(length, (length, length // 2 or 1))
    meter = Meter(max(FEW_ULP, subject.facts.leak))
    expected = outputs(mixer, x, keep)
    for name, view in _layouts(x).items():
        meter.compare(f"output for {name} tokens", outputs(mixer, view, keep), expected)
    meter.compare("output for a transposed mask", outputs(mixer, x, keep.T.contiguous().T), expected)
    same = keep[:1].expand(2, -1)
    meter.compare("output for an expanded mask", outputs(mixer, x, same), outputs(mixer, x, same.contiguous()))
    reference = _backward(mixer, x, keep, weights(x))
    for name, view in _layouts(weights(x)).items():
        compare_all(meter, _backward(mixer, x, keep, view), reference, f", given {name} gradients of the output")
    return meter.finding()


def _layouts(x: Tensor) -> dict[str, Tensor]:
    return {
        "batch-second": x.transpose(0, 1).contiguous().transpose(0, 1),
        "transposed": x.transpose(1, 2).contiguous().transpose(1, 2),
        "strided": torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    }


def _backward(mixer: TokenMixer, x: Tensor, keep: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Gradients by tokens and weights for a given gradient of the output."""
    x = x.clone().requires_grad_()
    out = call(mixer, x, keep).out
    named = {"tokens": x, **{name: weight for name, weight in mixer.named_parameters() if weight.requires_grad}}
    if not out.requires_grad:
        return {}
    found = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    return {f"gradient by {name}": got for name, got in zip(named, found, strict=True) if got is not None}


CHECKS = (Check(name="strides", shows="tensors need not be contiguous, nor gradients that come in", run=strides),)
