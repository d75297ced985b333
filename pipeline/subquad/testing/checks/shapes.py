"""Shapes, dtypes, and inputs that are left alone. Letters: B batch, L length, D model width."""

from __future__ import annotations

import torch

from subquad.testing.calls import call, outputs, padded
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import ROUNDING, Meter, finite
from subquad.testing.subject import Subject

LENGTH = 13
DTYPES = (torch.float64, torch.float32)


def shapes(subject: Subject) -> Finding:
    """(B, L, D) in, (B, L, D) out in the same dtype, all finite, with and without a mask."""
    length = subject.at_most(LENGTH)
    for dtype in DTYPES:
        mixer, x = subject.build(dtype=dtype), subject.tokens(2, length, dtype=dtype)
        for keep in (None, padded(length, (length, length // 2))):
            out, name = outputs(mixer, x, keep), f"output for {str(dtype).removeprefix('torch.')}"
            if out.shape != x.shape or out.dtype != dtype:
                raise CheckFailed(f"{name}: {tuple(out.shape)} {out.dtype}, expected {tuple(x.shape)} {dtype}")
            finite(name, out)
    return Finding(f"(2, {length}, {subject.dim}) in float64 and float32")


def mask_of_ones(subject: Subject) -> Finding:
    """A mask in which all tokens are real means the same as no mask."""
    mixer, x = subject.build(), subject.tokens(2, subject.at_most(LENGTH))
    meter = Meter(ROUNDING)
    meter.compare(
        "no mask against a mask of real tokens", outputs(mixer, x, torch.ones(x.shape[:2]).bool()), outputs(mixer, x)
    )
    return meter.finding()


def inputs_kept(subject: Subject) -> Finding:
    """The call changes neither tokens nor mask in place."""
    length = subject.at_most(LENGTH)
    mixer, x, keep = subject.build(), subject.tokens(2, length), padded(length, (length, length // 2))
    before = x.clone(), keep.clone()
    call(mixer, x, keep)
    with torch.no_grad():
        call(mixer, x, keep)
    for name, now, then in zip(("x", "keep"), (x, keep), before, strict=True):
        if not torch.equal(now, then):
            raise CheckFailed(f"the call changed {name} in place")
    return Finding("x and keep as they were")


CHECKS = (
    Check(name="shapes", shows="output has the input's shape and dtype, and is finite", run=shapes),
    Check(name="mask-of-ones", shows="a mask in which all tokens are real means the same as none", run=mask_of_ones),
    Check(name="inputs-kept", shows="inputs are not changed in place", run=inputs_kept),
)
