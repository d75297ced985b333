"""What goes in and comes out: shapes, dtypes, memory layouts, lengths; and where a mixer stands: on
a device, behind a class token, on a grid of image patches.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.errors import ConfigError, PluginError
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad_check.calls import (
    Form,
    Tensors,
    afresh,
    alike,
    call,
    gradients,
    modes,
    outputs,
    padded,
    passes,
    tensors_of,
    trainable,
    weighted,
)
from subquad_check.cases import compares, shows
from subquad_check.meter import (
    CheckFailed,
    Comparisons,
    Finding,
    NotApplicable,
    each,
    finite,
    kind,
    word,
)
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
    formats = []
    shape = None
    for dtype in subject.dtypes:
        mixer, x, keep = subject.case(LENGTH, dtype)
        shape = tuple(x.shape)
        formats.append(word(dtype))
        for mode in modes(mixer):
            name = f"output for {word(dtype)} in {mode}"
            for mask in (None, keep):
                out = outputs(mixer, x, mask)
                if kind(out) != kind(x):
                    raise CheckFailed(f"{name}: {kind(out)}, expected {kind(x)}")
                finite(name, out)
    return Finding(f"{shape} in {' and '.join(formats)}")


@compares("a mask in which all tokens are real means the same as none")
def _mask_of_ones(subject: CheckSubject) -> Comparisons:
    mixer, x, keep = subject.case(LENGTH)
    forms = {"with a mask of real tokens against no mask": Form(x, torch.ones_like(keep))}
    yield from alike(mixer, x, None, forms)


@compares("inputs are not changed in place, nor outputs by later calls", 0.0)
def _inputs_kept(subject: CheckSubject) -> Comparisons:
    mixer, x, keep = subject.case(LENGTH)
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
    FEW_ULP,
    leaks=True,
)
def _strides(subject: CheckSubject) -> Comparisons:
    """The same numbers in other layouts: outputs and gradients as for contiguous ones, to a few
    roundings.
    """
    mixer, x, keep = subject.case(LENGTH)
    masks = {
        "an expanded": keep[:1].expand(2, -1),
        "a transposed": keep.T.contiguous().T,
        "no": None,
    }
    for which, mask in masks.items():
        forms = {
            f"for {name} tokens and {which} mask": Form(view, mask)
            for name, view in {"plain": x, **_layouts(x)}.items()
        }
        plain = None if mask is None else mask.contiguous()
        yield from alike(mixer, x, plain, forms, dropout=False)
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
    return gradients(call(afresh(mixer), x, keep).out, {"tokens": x, **trainable(mixer)}, grad)


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
    passes(f"length {longest} in float32", *subject.case(longest, torch.float32))
    x, keep = subject.pair(LENGTH)
    # nothing to scale or to tell apart: norms and spreads are 0
    batches = {
        "zero tokens": torch.zeros_like(x),
        "zero tokens among others": x.masked_fill(torch.arange(x.shape[1])[:, None] % 3 == 0, 0.0),
        "equal tokens": x[:, :1].expand_as(x),
    }
    flat = [(what, x, mask) for what, x in batches.items() for mask in (None, keep)]
    formats = _passes_in_formats(subject, flat)
    return Finding(f"lengths {', '.join(map(str, tried))}; zero and equal tokens {formats}")


def _passes_in_formats(
    subject: CheckSubject, batches: Iterable[tuple[str, Tensor, Tensor | None]]
) -> str:
    """Batches in words, their tokens and masks: also in float32 and, where it can be called so,
    under bf16 autocast; where it cannot, `precision-bf16` alone says so. Returns the formats.
    """
    mixer = subject.build()
    single, *first = subject.case(LENGTH, torch.float32)
    autocasts = True
    try:
        passes("", single, *first, autocast=True)
    except CheckFailed:
        pass
    except Exception:
        autocasts = False
    for what, x, keep in batches:
        passes(what, mixer, x, keep)
        passes(what, single, x.float(), keep)
        if autocasts:
            passes(f"{what} under bf16 autocast", single, x.float(), keep, autocast=True)
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
        more = 3 * most + 1
        try:
            passes(f"built for {most}, length {more}", mixer, subject.tokens(2, more), None)
        except CheckFailed:
            raise
        except Exception as error:
            raise CheckFailed(
                f"longer than max_len {most}, {more} positions: {cause(error)}; "
                'if it is bound to that, claim max_length="site"'
            ) from error
        return Finding(f"unbound: built for {most}, takes {more}")
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


@compares("a sample without real tokens is finite and leaves the others alone", 0.0, leaks=True)
def _all_padded(subject: CheckSubject) -> Comparisons:
    """A sample without a real token: all finite, the other samples as they were; also a batch of
    nothing else.
    """
    length = subject.at_most(LENGTH)
    half = (length + 1) // 2
    keep = padded(length, (length, length - 1, half))
    fewer = padded(length, (length, 0, half))
    x = subject.tokens(3, length)
    batches = {"a sample": fewer, "a batch": torch.zeros_like(keep)}
    _passes_in_formats(
        subject, [(f"{what} without real tokens", x, mask) for what, mask in batches.items()]
    )
    mixer = subject.build()
    yield (
        "output at real tokens beside a sample without any",
        outputs(mixer, x, fewer)[fewer],
        outputs(mixer, x, keep)[fewer],
    )


GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


@shows("tensors it makes are on its tokens' device")
def _devices(subject: CheckSubject) -> Finding:
    """Without numbers, on torch's meta device, where no tensor of the CPU may take part."""
    mixer, x, keep = subject.case(LENGTH)
    outputs(mixer, x, keep)  # what cannot be called anywhere is told by another check
    mixer = mixer.to("meta")
    x = x.to("meta")
    keep = keep.to("meta")
    found: list[Any] = []
    try:
        with _Elsewhere(), mock.patch.object(torch.autocast, "__init__", _autocast_anywhere):
            for _ in modes(mixer):
                for mask in (None, keep):
                    result = call(mixer, x, mask)
                    found += [result.out, result.losses, result.carry]
            if mixer.caches:
                out, cache = mixer.prefill(x, keep=keep)
                found += [out, cache, mixer.step(x[:, 0], cache)]
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        raise NotApplicable(
            f"torch's meta device has no numbers to go on with: {cause(error)}"
        ) from None
    for tensor in tensors_of(found):
        if not tensor.is_meta:
            raise CheckFailed(f"for tokens on {x.device} it returns a tensor on {tensor.device}")
    return Finding("both modes, with and without a mask")


_AUTOCAST = torch.autocast.__init__


def _autocast_anywhere(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
    """torch has no autocast on the meta device, not even one that is switched off."""
    if device_type == "meta":
        device_type = "cpu"
    _AUTOCAST(self, device_type, *args, **kwargs)


_ALSO_OF_CPU = ("_to_copy", "copy_", "index", "index_put", "index_put_", "_pack_padded_sequence")
"""Operations that take a tensor of the CPU beside those of a GPU; the last one wants its lengths
there.
"""


class _Elsewhere(TorchDispatchMode):
    """Inside, an operation takes tensors of one device, but for CPU numbers and indices, as a GPU's
    does.

    Who asks for a number on the meta device gets 1; who takes a tensor from there to the CPU,
    zeros.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = tensors_of((args, kwargs))
        for meta in [tensor for tensor in tensors if tensor.is_meta][:1]:
            if name == "_local_scalar_dense":
                return torch.ones((), dtype=meta.dtype).item()
            device = torch.device(kwargs.get("device") or "meta")
            if name == "_to_copy" and device.type != "meta":
                dtype = kwargs.get("dtype") or meta.dtype
                return torch.zeros(meta.shape, dtype=dtype, device=device)
            for other in tensors:
                if other.dim() and not other.is_meta and name not in _ALSO_OF_CPU:
                    raise CheckFailed(
                        f"{name} takes a tensor {kind(other)} on {other.device} beside its "
                        "tokens' on meta"
                    )
        return func(*args, **kwargs)


@shows("works with a class token in front, also on a grid of image patches")
def _class_token(subject: CheckSubject) -> Finding:
    x, keep = subject.pair(LENGTH + 1)
    words = f"1 + {x.shape[1] - 1} tokens"
    sites = [{}]
    if subject.at_most(MAX_LEN) == MAX_LEN:
        sites.append({"grid": GRID})
        words += ", 1 + 7 x 9 patches"
    for site in sites:
        try:
            mixer = subject.build(num_prefix_tokens=1, **site)
        except ConfigError as error:
            raise NotApplicable(f"refuses such a place when built: {error}") from None
        if site:
            passes("image patches", mixer, subject.tokens(2, MAX_LEN), None)
        else:
            passes("class token in front", mixer, x, None)
            passes("class token in front, padded", mixer, x, keep)
    return Finding(words)
