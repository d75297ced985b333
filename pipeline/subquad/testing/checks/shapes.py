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
from torch.utils._pytree import tree_leaves

from subquad.errors import ConfigError, PluginError
from subquad.nn import MixerOutput, TokenMixer
from subquad.registry.foreign import cause
from subquad.testing.check import ROUNDING, CheckFailed, Finding, Meter, NotApplicable, finite, kind, shows
from subquad.testing.subject import (
    FAR,
    MAX_LEN,
    CheckSubject,
    afresh,
    call,
    gradients,
    modes,
    outputs,
    padded,
    settled_modes,
    total,
    trainable,
    weighted,
)

FEW_ULP = 64 * torch.finfo(torch.float64).eps
"""Allowed in float64 for another memory layout of the same numbers, relative to the largest: a matrix product reads a
transposed operand with another kernel, whose sums have another order."""

LENGTH = 13
LENGTHS = (1, 2, 3, 7, 31, 33, 63, MAX_LEN, FAR)
GRID = (7, 9)
"""Height and width: with the class token as many tokens as `MAX_LEN`."""


def passes(what: str, mixer: TokenMixer, x: Tensor, keep: Tensor | None, *, autocast: bool = False) -> None:
    """A forward pass in evaluation, and one with its backward pass in training.

    Raises:
        CheckFailed: the output has another shape, or something is not finite.
    """
    for mode in modes(mixer):
        tokens = x.clone().requires_grad_(mixer.training)
        with torch.set_grad_enabled(mixer.training):
            result = call(afresh(mixer), tokens, keep, autocast=autocast)
        if result.out.shape != x.shape:
            raise CheckFailed(f"{what} in {mode}: output {tuple(result.out.shape)}, expected {tuple(x.shape)}")
        finite(f"{what} in {mode}: output and losses", result.out, *result.losses.values())
        if mixer.training:
            finite(f"{what}: gradients", *gradients(total(result), {"tokens": tokens, **trainable(mixer)}).values())


@shows("output has the input's shape and dtype, and is finite")
def _shapes(subject: CheckSubject) -> Finding:
    """(B, L, D) in, (B, L, D) out in the same dtype, all finite, with and without a mask."""
    x64, mask = subject.pair(LENGTH)
    for dtype in (torch.float64, torch.float32):
        mixer, x = subject.build(dtype=dtype), x64.to(dtype)
        for mode, keep in ((mode, keep) for mode in modes(mixer) for keep in (None, mask)):
            out, name = outputs(mixer, x, keep), f"output for {str(dtype).removeprefix('torch.')} in {mode}"
            if out.shape != x.shape or out.dtype != dtype:
                raise CheckFailed(f"{name}: {tuple(out.shape)} {out.dtype}, expected {tuple(x.shape)} {dtype}")
            finite(name, out)
    return Finding(f"{tuple(x64.shape)} in float64 and float32")


@shows("a mask in which all tokens are real means the same as none")
def _mask_of_ones(subject: CheckSubject) -> Finding:
    mixer, (x, keep), meter = subject.build(), subject.pair(LENGTH), Meter(ROUNDING)
    for mode in modes(mixer):
        got = outputs(mixer, x, torch.ones_like(keep))
        meter.compare(f"no mask against a mask of real tokens in {mode}", got, outputs(mixer, x))
    return meter.finding()


@shows("inputs are not changed in place")
def _inputs_kept(subject: CheckSubject) -> Finding:
    mixer, (x, keep) = subject.build(), subject.pair(LENGTH)
    before = x.clone(), keep.clone()
    for _ in modes(mixer):
        call(mixer, x, keep)
        outputs(mixer, x, keep)
    for name, now, then in zip(("x", "keep"), (x, keep), before, strict=True):
        if not torch.equal(now, then):
            raise CheckFailed(f"the call changed {name} in place")
    return Finding("x and keep as they were")


@shows("tensors need not be contiguous, nor gradients that come in")
def _strides(subject: CheckSubject) -> Finding:
    """The same numbers in other layouts: outputs and gradients as for contiguous ones, to a few roundings."""
    mixer, (x, keep), meter = subject.build(), subject.pair(LENGTH), Meter(max(FEW_ULP, subject.facts.leak))
    still = partial(outputs, mixer, dropout=False)
    for mode in settled_modes(mixer, x):
        expected = still(x, keep)
        for name, view in _layouts(x).items():
            meter.compare(f"output for {name} tokens in {mode}", still(view, keep), expected)
        meter.compare(f"output for a transposed mask in {mode}", still(x, keep.T.contiguous().T), expected)
        same = keep[:1].expand(2, -1)
        meter.compare(f"output for an expanded mask in {mode}", still(x, same), still(x, same.contiguous()))
    mixer.train()
    grad = weighted(torch.ones_like(x))
    reference = _backward(mixer, x, keep, grad)
    for name, view in _layouts(grad).items():
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
    out = call(afresh(mixer), x, keep).out
    named = {"tokens": x, **trainable(mixer)}
    if not out.requires_grad:
        return {}
    found = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    return {f"gradient by {name}": got for name, got in zip(named, found, strict=True) if got is not None}


@shows("one token, odd, prime and longest sequences work")
def _lengths(subject: CheckSubject) -> Finding:
    tried = tuple(dict.fromkeys(map(subject.at_most, LENGTHS)))
    mixers = {length: subject.build(max_len=max(length, MAX_LEN)) for length in {min(tried[-1], MAX_LEN), tried[-1]}}
    for length in tried:
        mixer, (x, mask) = mixers[min(most for most in mixers if most >= length)], subject.pair(length)
        for keep in (None, mask)[length == FAR :]:
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
    try:
        outputs(subject.build(max_len=most), subject.tokens(1, most + 1))
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
    length, meter = subject.at_most(LENGTH), Meter(subject.facts.leak)
    fewer, keep = (padded(length, (length, n, (length + 1) // 2)) for n in (0, length - 1))
    for dtype in (torch.float32, torch.float64):
        mixer, x = subject.build(dtype=dtype), subject.tokens(3, length, dtype=dtype)
        passes("a sample without real tokens", mixer, x, fewer)
        passes("a batch without real tokens", mixer, x, torch.zeros_like(keep))
        if dtype == torch.float32:
            passes("a sample without real tokens under bf16 autocast", mixer, x, fewer, autocast=True)
    expected, got = outputs(mixer, x, keep), outputs(mixer, x, fewer)
    for own in (0, 2):
        label = f"output of sample {own} at real tokens beside a sample without any"
        meter.compare(label, got[own][keep[own]], expected[own][keep[own]])
    return meter.finding("finite outputs, losses and gradients")


@shows("tensors it makes are on its tokens' device")
def _devices(subject: CheckSubject) -> Finding:
    """Without numbers, on torch's meta device, where no tensor of the CPU may take part."""
    mixer, (x, keep) = subject.build().to("meta"), subject.pair(LENGTH)
    x, keep, found = x.to("meta"), keep.to("meta"), []
    try:
        with _Elsewhere(), mock.patch.object(torch.autocast, "__init__", _autocast_anywhere):
            for _ in modes(mixer):
                found += [call(mixer, x, mask) for mask in (None, keep)]
            if mixer.caches:
                found.append(MixerOutput(*mixer.prefill(x, keep=keep)))
                found.append(MixerOutput(*mixer.step(x[:, 0], found[-1].losses)))
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        raise NotApplicable(f"torch's meta device has no numbers to go on with: {cause(error)}") from None
    for one in tree_leaves([tuple(result) for result in found]):
        if isinstance(one, Tensor) and one.device.type != "meta":
            raise CheckFailed(f"for tokens on {x.device} it returns a tensor on {one.device}")
    return Finding("both modes, with and without a mask")


_AUTOCAST = torch.autocast.__init__


def _autocast_anywhere(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
    """torch has no autocast on the meta device, not even one that is switched off."""
    _AUTOCAST(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)


class _Elsewhere(TorchDispatchMode):
    """Inside, an operation takes tensors of one device, but for CPU numbers and indices, as a GPU's does.

    Who asks for a number on the meta device gets 1; who takes a tensor from there to the CPU, zeros.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        away = [one for one in tensors if one.is_meta]
        if name == "_local_scalar_dense" and away:
            return torch.ones((), dtype=away[0].dtype).item()
        if name == "_to_copy" and away and torch.device(kwargs.get("device") or "meta").type != "meta":
            return torch.zeros(away[0].shape, dtype=kwargs.get("dtype") or away[0].dtype, device=kwargs["device"])
        if away and name not in ("_to_copy", "copy_", "index", "index_put", "index_put_"):
            for one in tensors:
                if not one.is_meta and one.dim():
                    raise CheckFailed(f"{name} takes a tensor {kind(one)} on {one.device} beside its tokens' on meta")
        return func(*args, **kwargs)


@shows("works with a class token in front")
def _class_token(subject: CheckSubject) -> Finding:
    mixer, (x, keep) = _built(subject, num_prefix_tokens=1), subject.pair(LENGTH + 1)
    passes("class token in front", mixer, x, None)
    passes("class token in front, padded", mixer, x, keep)
    return Finding(f"1 + {x.shape[1] - 1} tokens")


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
