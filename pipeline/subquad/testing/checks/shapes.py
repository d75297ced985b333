"""What goes in and comes out, wherever a mixer stands: shapes, dtypes, memory layouts, lengths.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.errors import ConfigError, PluginError
from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad.testing.calls import (
    afresh,
    backward,
    call,
    gradients,
    modes,
    outputs,
    padded,
    settled_modes,
    tensors_of,
    total,
    trainable,
    weighted,
)
from subquad.testing.cases import compares, leak_of, shows
from subquad.testing.meter import (
    CheckFailed,
    Comparisons,
    Finding,
    NotApplicable,
    each,
    finite,
    kind,
    word,
)
from subquad.testing.subject import FAR, MAX_LEN, CheckSubject

FEW_ULP = 64 * torch.finfo(torch.float64).eps
"""Allowed in float64 for another memory layout of the same numbers, relative to the largest: a
matrix product reads a transposed operand with another kernel, whose sums have another order.
"""

LENGTH = 13
LENGTHS = (1, 2, 3, 7, 31, 33, 63, MAX_LEN, FAR)
GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


def passes(
    what: str, mixer: TokenMixer, x: Tensor, keep: Tensor | None, *, autocast: bool = False
) -> None:
    """A forward pass in evaluation, and one with its backward pass in training.

    Raises:
        CheckFailed: the output has another shape, or something is not finite.
    """
    for mode in modes(mixer):
        tokens = x.clone().requires_grad_(mixer.training)
        with torch.set_grad_enabled(mixer.training):
            result = call(afresh(mixer), tokens, keep, autocast=autocast)
        where = f"{what} in {mode}"
        given = tuple(result.out.shape)
        wanted = tuple(x.shape)
        if given != wanted:
            raise CheckFailed(f"{where}: output {given}, expected {wanted}")
        finite(f"{where}: output and losses", result.out, *result.losses.values())
        if mixer.training:
            inputs = {"tokens": tokens, **trainable(mixer)}
            grads = gradients(total(result), inputs)
            finite(f"{what}: gradients", *grads.values())


@shows("output has the input's shape and dtype, and is finite")
def _shapes(subject: CheckSubject) -> Finding:
    """(B, L, D) in, (B, L, D) out in the same dtype, all finite, with and without a mask."""
    subject.first_call()
    tokens, mask = subject.pair(LENGTH)
    for dtype in (torch.float64, torch.float32):
        mixer = subject.build(dtype=dtype)
        x = tokens.to(dtype)
        for mode in modes(mixer):
            name = f"output for {word(dtype)} in {mode}"
            for keep in (None, mask):
                out = outputs(mixer, x, keep)
                if kind(out) != kind(x):
                    raise CheckFailed(f"{name}: {kind(out)}, expected {kind(x)}")
                finite(name, out)
    return Finding(f"{tuple(tokens.shape)} in float64 and float32")


@compares("a mask in which all tokens are real means the same as none")
def _mask_of_ones(subject: CheckSubject) -> Comparisons:
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
    for mode in modes(mixer):
        got = outputs(mixer, x, torch.ones_like(keep))
        yield f"no mask against a mask of real tokens in {mode}", got, outputs(mixer, x)


@shows("inputs are not changed in place")
def _inputs_kept(subject: CheckSubject) -> Finding:
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
    expected_x, expected_keep = subject.pair(LENGTH)
    for _ in modes(mixer):
        call(mixer, x, keep)
        outputs(mixer, x, keep)
    if not torch.equal(x, expected_x):
        raise CheckFailed("the call changed x in place")
    if not torch.equal(keep, expected_keep):
        raise CheckFailed("the call changed keep in place")
    return Finding("x and keep as they were")


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
    still = partial(outputs, mixer, dropout=False)
    for mode in settled_modes(mixer, x):
        expected = still(x, keep)
        for name, view in _layouts(x).items():
            yield f"output for {name} tokens in {mode}", still(view, keep), expected
        yield f"output for a transposed mask in {mode}", still(x, transposed), expected
        expected = still(x, expanded.contiguous())
        yield f"output for an expanded mask in {mode}", still(x, expanded), expected
    mixer.train()
    grad = weighted(torch.ones_like(x))
    reference = _backward(mixer, x, keep, grad)
    for name, view in _layouts(grad).items():
        label = f", given {name} gradients of the output"
        yield from each(_backward(mixer, x, keep, view), reference, label)


def _layouts(x: Tensor) -> dict[str, Tensor]:
    return {
        "batch-second": x.transpose(0, 1).contiguous().transpose(0, 1),
        "transposed": x.transpose(1, 2).contiguous().transpose(1, 2),
        "strided": torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    }


def _backward(mixer: TokenMixer, x: Tensor, keep: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Gradients by tokens and weights for a given gradient of the output."""
    x = x.clone().requires_grad_()
    out = call(afresh(mixer), x, keep).out
    found = backward(out, {"tokens": x, **trainable(mixer)}, grad)
    return {f"gradient by {name}": got for name, got in found.items() if got is not None}


@shows("one token, odd, prime and longest sequences work")
def _lengths(subject: CheckSubject) -> Finding:
    tried = subject.lengths(*LENGTHS)
    longest = tried[-1]
    short = subject.build()
    long = subject.build_for(longest)
    for length in tried:
        mixer = short if length <= MAX_LEN else long
        x, keep = subject.pair(length)
        if length != FAR:
            passes(f"length {length}", mixer, x, None)
        passes(f"length {length}", mixer, x, keep)
    single = subject.build(max_len=longest, dtype=torch.float32)
    x, keep = subject.pair(longest, torch.float32)
    passes(f"length {longest} in float32", single, x, keep)
    return Finding(f"lengths {', '.join(map(str, tried))}")


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
        reason = "raise a PluginError that names both lengths"
        raise CheckFailed(f"longer than max_len {most}: {reason}, got {cause(error)}") from error
    else:
        raise CheckFailed(
            f"claimed bound to {most} positions, but {more} were taken without a PluginError"
        )
    numbers = re.findall(r"\d+", message)
    if str(most) not in numbers or str(more) not in numbers or "\n" in message:
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
        advice = 'if it is bound to that, claim max_length="site"'
        message = f"longer than max_len {MAX_LEN}, {length} positions: {cause(error)}"
        raise CheckFailed(f"{message}; {advice}") from error
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
    mixer = subject.build()
    single = subject.build(dtype=torch.float32)
    x = subject.tokens(3, length)
    what = "a sample without real tokens"
    for built, tokens in ((single, x.float()), (mixer, x)):
        passes(what, built, tokens, fewer)
        passes("a batch without real tokens", built, tokens, torch.zeros_like(keep))
    if _autocasts(subject):
        passes(f"{what} under bf16 autocast", single, x.float(), fewer, autocast=True)
    expected = outputs(mixer, x, keep)
    got = outputs(mixer, x, fewer)
    for own in (0, 2):
        real = keep[own]
        label = f"output of sample {own} at real tokens beside a sample without any"
        yield label, got[own][real], expected[own][real]
    return "finite outputs, losses and gradients"


@shows("zero tokens and equal tokens give finite outputs and gradients")
def _flat_tokens(subject: CheckSubject) -> Finding:
    """Nothing to scale or to tell apart: norms and spreads are 0."""
    x, keep = subject.pair(LENGTH)
    mixer = subject.build()
    single = subject.build(dtype=torch.float32)
    autocasts = _autocasts(subject)
    batches = {"zero tokens": torch.zeros_like(x), "equal tokens": x[:, :1].expand_as(x)}
    for what, flat in batches.items():
        for mask in (None, keep):
            passes(what, mixer, flat, mask)
            passes(what, single, flat.float(), mask)
        if autocasts:
            passes(what, single, flat.float(), keep, autocast=True)
    return Finding("also in float32 and bf16" if autocasts else "also in float32")


def _autocasts(subject: CheckSubject) -> bool:
    """Whether it can be called under bf16 autocast; where it cannot, `precision-bf16` alone says
    so.
    """
    tokens, keep = subject.pair(LENGTH)
    try:
        passes("", subject.build(dtype=torch.float32), tokens.float(), keep, autocast=True)
    except CheckFailed:
        return True
    except Exception:
        return False
    return True


@shows("tensors it makes are on its tokens' device")
def _devices(subject: CheckSubject) -> Finding:
    """Without numbers, on torch's meta device, where no tensor of the CPU may take part."""
    mixer = subject.build()
    x, keep = subject.pair(LENGTH)
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
                found += mixer.prefill(x, keep=keep)
                found += mixer.step(x[:, 0], found[-1])
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        reason = "torch's meta device has no numbers to go on with"
        raise NotApplicable(f"{reason}: {cause(error)}") from None
    for tensor in tensors_of(found):
        if not tensor.is_meta:
            raise CheckFailed(f"for tokens on {x.device} it returns a tensor on {tensor.device}")
    return Finding("both modes, with and without a mask")


_AUTOCAST = torch.autocast.__init__


def _autocast_anywhere(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
    """torch has no autocast on the meta device, not even one that is switched off."""
    _AUTOCAST(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)


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
        meta = [tensor for tensor in tensors if tensor.is_meta]
        if not meta:
            return func(*args, **kwargs)
        dtype = meta[0].dtype
        device = torch.device(kwargs.get("device") or "meta")
        if name == "_local_scalar_dense":
            return torch.ones((), dtype=dtype).item()
        if name == "_to_copy" and device.type != "meta":
            return torch.zeros(meta[0].shape, dtype=kwargs.get("dtype") or dtype, device=device)
        if name not in _ALSO_OF_CPU:
            for tensor in tensors:
                if not tensor.is_meta and tensor.dim():
                    here = f"{kind(tensor)} on {tensor.device}"
                    raise CheckFailed(f"{name} takes a tensor {here} beside its tokens' on meta")
        return func(*args, **kwargs)


@shows("works with a class token in front")
def _class_token(subject: CheckSubject) -> Finding:
    mixer = _built(subject, num_prefix_tokens=1)
    x, keep = subject.pair(LENGTH + 1)
    passes("class token in front", mixer, x, None)
    passes("class token in front, padded", mixer, x, keep)
    return Finding(f"1 + {x.shape[1] - 1} tokens")


@shows("works on a grid of image patches with a class token")
def _image_grid(subject: CheckSubject) -> Finding:
    most = subject.at_most(MAX_LEN)
    if most < MAX_LEN:
        raise NotApplicable(f"takes {most} positions, a grid of 7 x 9 needs {MAX_LEN}")
    mixer = _built(subject, num_prefix_tokens=1, grid=GRID)
    passes("image patches", mixer, subject.tokens(2, MAX_LEN), None)
    return Finding("1 + 7 x 9 tokens")


def _built(subject: CheckSubject, **site: Any) -> TokenMixer:
    try:
        return subject.build(**site)
    except ConfigError as error:
        raise NotApplicable(f"refuses such a place when built: {error}") from None
