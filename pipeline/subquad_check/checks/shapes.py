"""What goes in and comes out: shapes, dtypes, memory layouts, lengths.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import re
from functools import partial

import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad_check.calls import (
    Tensors,
    afresh,
    backward,
    call,
    modes,
    outputs,
    padded,
    passes,
    settled_modes,
    trainable,
    weighted,
)
from subquad_check.cases import compares, leak_of, shows
from subquad_check.meter import CheckFailed, Comparisons, Finding, each, finite, kind, word
from subquad_check.subject import FAR, MAX_LEN, CheckSubject

FEW_ULP = 64 * torch.finfo(torch.float64).eps
"""Allowed in float64 for another memory layout of the same numbers, relative to the largest: a
matrix product reads a transposed operand with another kernel, whose sums have another order.
"""

LENGTH = 13
LENGTHS = (1, 2, 3, 7, 31, 33, 63, MAX_LEN, FAR)


@shows("output has the input's shape and dtype, and is finite")
def _shapes(subject: CheckSubject) -> Finding:
    """(B, L, D) in, (B, L, D) out in the same dtype, all finite, with and without a mask."""
    subject.first_call(subject.dtype)
    tokens, mask = subject.pair(LENGTH)
    for dtype in subject.dtypes:
        mixer = subject.build(dtype=dtype)
        x = tokens.to(dtype)
        wanted = kind(x)
        for mode in modes(mixer):
            name = f"output for {word(dtype)} in {mode}"
            for keep in (None, mask):
                out = outputs(mixer, x, keep)
                given = kind(out)
                if given != wanted:
                    raise CheckFailed(f"{name}: {given}, expected {wanted}")
                finite(name, out)
    return Finding(f"{tuple(tokens.shape)} in {' and '.join(map(word, subject.dtypes))}")


@compares("a mask in which all tokens are real means the same as none")
def _mask_of_ones(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
    for mode in modes(mixer):
        yield (
            f"no mask against a mask of real tokens in {mode}",
            outputs(mixer, x, torch.ones_like(keep)),
            outputs(mixer, x),
        )


@compares("inputs are not changed in place, nor outputs by later calls", 0.0)
def _inputs_kept(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
    expected_x, expected_keep = subject.pair(LENGTH)
    for mode in modes(mixer):
        call(mixer, x, keep)
        out = outputs(mixer, x, keep)
        before = out.clone()
        outputs(mixer, 2 * x, keep)
        yield f"output of the call before another one in {mode}", out, before
    yield "tokens after the calls", x, expected_x
    yield "mask after the calls", keep.to(x), expected_keep.to(x)


@compares(
    "tensors need not be contiguous, nor gradients that come in",
    lambda subject: max(FEW_ULP, subject.facts.leak),
)
def _strides(subject: CheckSubject) -> Comparisons:
    """The same numbers in other layouts: outputs and gradients as for contiguous ones, to a few
    roundings.
    """
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
    transposed = keep.T.contiguous().T
    expanded = keep[:1].expand(2, -1)
    same = expanded.contiguous()
    still = partial(outputs, mixer, dropout=False)
    for mode in settled_modes(mixer, x):
        for mask, where in ((keep, mode), (None, f"{mode}, no mask")):
            expected = still(x, mask)
            for name, view in _layouts(x).items():
                yield f"output for {name} tokens in {where}", still(view, mask), expected
        expected = still(x, keep)
        yield f"output for a transposed mask in {mode}", still(x, transposed), expected
        expected = still(x, same)
        yield f"output for an expanded mask in {mode}", still(x, expanded), expected
    mixer.train()
    grad = weighted(torch.ones_like(x))
    expected = _backward(mixer, x, keep, grad)
    for name, view in _layouts(grad).items():
        got = _backward(mixer, x, keep, view)
        yield from each(got, expected, f", given {name} gradients of the output")


def _layouts(x: Tensor) -> Tensors:
    return {
        "batch-second": x.transpose(0, 1).contiguous().transpose(0, 1),
        "transposed": x.transpose(1, 2).contiguous().transpose(1, 2),
        "strided": torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    }


def _backward(mixer: TokenMixer, x: Tensor, keep: Tensor, grad: Tensor) -> Tensors:
    """Gradients by tokens and weights for a given gradient of the output."""
    x = x.clone().requires_grad_()
    inputs = {"tokens": x, **trainable(mixer)}
    return {
        f"gradient by {name}": own
        for name, own in backward(call(afresh(mixer), x, keep).out, inputs, grad).items()
        if own is not None
    }


@shows("one token, odd, prime and longest sequences work, and zero and equal tokens")
def _lengths(subject: CheckSubject) -> Finding:
    tried = subject.lengths(*LENGTHS)
    longest = tried[-1]
    short = subject.build()
    long = subject.build_for(longest)
    for length in tried:
        what = f"length {length}"
        mixer = short if length <= MAX_LEN else long
        x, keep = subject.pair(length)
        if length != FAR:
            passes(what, mixer, x, None)
        passes(what, mixer, x, keep)
    single = subject.build(max_len=longest, dtype=torch.float32)
    x, keep = subject.pair(longest, torch.float32)
    passes(f"length {longest} in float32", single, x, keep)
    return Finding(
        f"lengths {', '.join(map(str, tried))}; zero and equal tokens {_flat_tokens(subject)}"
    )


def _flat_tokens(subject: CheckSubject) -> str:
    """Nothing to scale or to tell apart: norms and spreads are 0. Returns the formats."""
    x, keep = subject.pair(LENGTH)
    mixer = subject.build()
    single = subject.build(dtype=torch.float32)
    autocasts = _autocasts(subject)
    batches = {
        "zero tokens": torch.zeros_like(x),
        "zero tokens among others": x.masked_fill(torch.arange(x.shape[1])[:, None] % 3 == 0, 0.0),
        "equal tokens": x[:, :1].expand_as(x),
    }
    for what, flat in batches.items():
        for mask in (None, keep):
            passes(what, mixer, flat, mask)
            passes(what, single, flat.float(), mask)
        if autocasts:
            passes(what, single, flat.float(), keep, autocast=True)
    return "also in float32 and bf16" if autocasts else "also in float32"


@shows("longer than what it is bound to is refused in words; unbound takes more")
def _max_length(subject: CheckSubject) -> Finding:
    """A bound mixer refuses one token more than it was built for, or than it says; an unbound one
    takes three times as many.
    """
    claimed = subject.facts.max_length
    most = claimed if isinstance(claimed, int) else MAX_LEN
    mixer = subject.build(max_len=most)
    length = min(most, FAR)
    passes(f"built for {most}, length {length}", mixer, subject.tokens(2, length), None)
    if claimed is None:
        return _takes_more(mixer, subject.tokens(2, 3 * most + 1))
    more = most + 1
    try:
        outputs(mixer, subject.tokens(1, 1).expand(1, more, -1))
    except PluginError as error:
        message = str(error)
    except Exception as error:
        raise CheckFailed(
            f"longer than max_len {most}: raise a PluginError that names both lengths, "
            f"got {cause(error)}"
        ) from error
    else:
        raise CheckFailed(
            f"claimed bound to {most} positions, but {more} were taken without a PluginError"
        )
    if {str(most), str(more)}.difference(re.findall(r"\d+", message)) or "\n" in message:
        raise CheckFailed(
            f"the refusal of {more} positions must name {more} and {most} in one line: {message}"
        )
    return Finding(f"{more} positions refused: {message}")


def _takes_more(mixer: TokenMixer, x: Tensor) -> Finding:
    """What a mixer that claims no longest sequence makes of a longer one than it was built for."""
    length = x.shape[1]
    try:
        passes(f"built for {MAX_LEN}, length {length}", mixer, x, None)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(
            f"longer than max_len {MAX_LEN}, {length} positions: {cause(error)}; "
            'if it is bound to that, claim max_length="site"'
        ) from error
    return Finding(f"unbound: built for {MAX_LEN}, takes {length}")


@compares("a sample without real tokens is finite and leaves the others alone", leak_of)
def _all_padded(subject: CheckSubject) -> Comparisons:
    """A sample without a real token: all finite, the other samples as they were; also a batch of
    nothing else.
    """
    length = subject.at_most(LENGTH)
    half = (length + 1) // 2
    keep = padded(length, (length, length - 1, half))
    fewer = padded(length, (length, 0, half))
    none = torch.zeros_like(keep)
    mixer = subject.build()
    single = subject.build(dtype=torch.float32)
    x = subject.tokens(3, length)
    rounded = x.float()
    sample = "a sample without real tokens"
    batch = "a batch without real tokens"
    passes(sample, single, rounded, fewer)
    passes(batch, single, rounded, none)
    passes(sample, mixer, x, fewer)
    passes(batch, mixer, x, none)
    if _autocasts(subject):
        passes(f"{sample} under bf16 autocast", single, rounded, fewer, autocast=True)
    expected = outputs(mixer, x, keep)
    got = outputs(mixer, x, fewer)
    for own in (0, 2):
        real = keep[own]
        yield (
            f"output of sample {own} at real tokens beside a sample without any",
            got[own][real],
            expected[own][real],
        )
    return "finite outputs, losses and gradients"


def _autocasts(subject: CheckSubject) -> bool:
    """Whether it can be called under bf16 autocast; where it cannot, `precision-bf16` alone says
    so.
    """
    x, keep = subject.pair(LENGTH, torch.float32)
    mixer = subject.build(dtype=torch.float32)
    try:
        passes("", mixer, x, keep, autocast=True)
    except CheckFailed:
        return True
    except Exception:
        return False
    return True
