"""What goes in and comes out: shapes, dtypes, memory layouts, lengths; and inputs that are left alone.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.testing.calls import autocast_call, call, outputs, padded, passes, random_like, trainable
from subquad.testing.check import CheckFailed, Finding, shows
from subquad.testing.measure import FEW_ULP, ROUNDING, Meter, finite
from subquad.testing.subject import MAX_LEN, CheckSubject

LENGTH = 13
DTYPES = (torch.float64, torch.float32)
LENGTHS = (1, 2, 3, 7, 31, 33, 63, MAX_LEN)


@shows("output has the input's shape and dtype, and is finite")
def _shapes(subject: CheckSubject) -> Finding:
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


@shows("a mask in which all tokens are real means the same as none")
def _mask_of_ones(subject: CheckSubject) -> Finding:
    mixer, x = subject.build(), subject.tokens(2, subject.at_most(LENGTH))
    meter = Meter(ROUNDING)
    meter.compare(
        "no mask against a mask of real tokens", outputs(mixer, x, torch.ones(x.shape[:2]).bool()), outputs(mixer, x)
    )
    return meter.finding()


@shows("inputs are not changed in place")
def _inputs_kept(subject: CheckSubject) -> Finding:
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


@shows("tensors need not be contiguous, nor gradients that come in")
def _strides(subject: CheckSubject) -> Finding:
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
    reference = _backward(mixer, x, keep, random_like(x))
    for name, view in _layouts(random_like(x)).items():
        meter.compare_all(_backward(mixer, x, keep, view), reference, f", given {name} gradients of the output")
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
    named = {"tokens": x, **trainable(mixer)}
    if not out.requires_grad:
        return {}
    found = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    return {f"gradient by {name}": got for name, got in zip(named, found, strict=True) if got is not None}


@shows("one token, odd, prime and longest sequences work")
def _lengths(subject: CheckSubject) -> Finding:
    """Outputs of the right shape, finite outputs, losses and gradients, with and without padding."""
    mixer = subject.build()
    tried = tuple(dict.fromkeys(map(subject.at_most, LENGTHS)))
    for length in tried:
        x = subject.tokens(2, length)
        for keep in (None, padded(length, (length, (length + 1) // 2))):
            passes(f"length {length}", mixer, x, keep)
    return Finding(f"lengths {', '.join(map(str, tried))}")


@shows("longer than what it is bound to is refused in words; unbound takes more")
def _max_length(subject: CheckSubject) -> Finding:
    """A bound mixer refuses one token more than it was built for; an unbound one takes three times as many."""
    if subject.facts.max_length is None:
        length = 3 * MAX_LEN + 1
        passes(f"built for {MAX_LEN}, length {length}", subject.build(), subject.tokens(2, length), None)
        return Finding(f"unbound: built for {MAX_LEN}, takes {length}")
    most = subject.at_most(MAX_LEN)
    mixer = subject.build(max_len=most)
    try:
        outputs(mixer, subject.tokens(1, most + 1))
    except PluginError as error:
        message = str(error)
    else:
        raise CheckFailed(f"claimed bound to {most} positions, but {most + 1} were taken without a PluginError")
    if not {str(most), str(most + 1)} <= set(re.findall(r"\d+", message)) or "\n" in message:
        raise CheckFailed(f"the refusal of {most + 1} positions must name {most + 1} and {most} in one line: {message}")
    return Finding(f"{most + 1} positions refused: {message}")


@shows("a sample without real tokens is finite and leaves the others alone")
def _all_padded(subject: CheckSubject) -> Finding:
    """A sample without a real token: all finite, the other samples as they were; also a batch of nothing else."""
    length = subject.at_most(13)
    for dtype in (torch.float64, torch.float32):
        mixer, x = subject.build(dtype=dtype), subject.tokens(3, length, dtype=dtype)
        keep = padded(length, (length, 0, (length + 1) // 2))
        passes("a sample without real tokens", mixer, x, keep)
        passes("a batch without real tokens", mixer, x, torch.zeros_like(keep))
    passes("a sample without real tokens under bf16 autocast", mixer, x, keep, autocast_call)
    return _others(subject).finding("finite outputs, losses and gradients")


def _others(subject: CheckSubject) -> Meter:
    """Outputs of the samples beside one that loses all its real tokens.

    Raises:
        CheckFailed: they change.
    """
    length, meter = subject.at_most(13), Meter(subject.facts.leak)
    mixer, x = subject.build(), subject.tokens(3, length)
    keep, fewer = (padded(length, (length, n, (length + 1) // 2)) for n in (length - 1, 0))
    expected, got = outputs(mixer, x, keep), outputs(mixer, x, fewer)
    for own in (0, 2):
        label = f"output of sample {own} at real tokens beside a sample without any"
        meter.compare(label, got[own][keep[own]], expected[own][keep[own]])
    return meter
