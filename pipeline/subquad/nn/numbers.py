"""The numbers that a module computes with: their kinds, their memory, and what float32 means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from subquad.errors import PluginError

Module = TypeVar("Module", bound=nn.Module)

_KEPT = {
    torch.float32,
    torch.complex64,
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
}
"""Kinds of number that torch can copy and files have, where real ones are float32."""


def kind(tensor: Tensor, real: torch.dtype) -> torch.dtype:
    """The kind of number that a tensor has where real ones are `real`: complex ones stay complex,
    whole ones stay as they are.
    """
    if tensor.is_complex():
        return real.to_complex()
    if tensor.is_floating_point():
        return real
    return tensor.dtype


def dense(module: Module, real: torch.dtype) -> Module:
    """Give each parameter and buffer memory of its own, one number after the other, with equal
    values in its own kind of number.

    Fused optimisers, copies between processes and files take memory as such. A weight that is a
    slice, a transpose or the result of `expand` is none. What is one tensor under two names stays
    one.

    Args:
        module: changed in place.
        real: float32 or float64, for real numbers; complex ones get as many bits for each part.

    Raises:
        PluginError: a tensor is no plain one, or two have numbers in common.
    """
    names = dict[Tensor, str]()
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        names.setdefault(tensor, name)
    sharing = defaultdict[int, list[Tensor]](list)
    for tensor, name in names.items():
        unusual = _unusual(tensor)
        if unusual:
            raise PluginError(f"{name} is {unusual}; a weight or buffer must be a plain tensor")
        sharing[tensor.untyped_storage().data_ptr()].append(tensor)
    for tensors in sharing.values():
        _refuse_shared(tensors, names)
    for tensor in names:
        numbers = tensor.data.to(kind(tensor, real))
        tensor.data = numbers.resolve_conj().resolve_neg().contiguous()
    return module


def _unusual(tensor: Tensor) -> str:
    """Why a tensor is no plain one, in words; "" where it is."""
    if is_lazy(tensor):
        return "made in the first call"
    kinds = {
        f"of {tensor.layout}": tensor.layout is not torch.strided,
        f"of {tensor.dtype}": kind(tensor, torch.float32) not in _KEPT,
        f"a {type(tensor).__name__}": is_traceable_wrapper_subclass(tensor) or tensor.is_nested,
        "on the device meta, without values": tensor.is_meta,
        "made in inference mode": tensor.is_inference(),
    }
    return ", ".join(words for words, applies in kinds.items() if applies)


def _refuse_shared(tensors: Sequence[Tensor], names: Mapping[Tensor, str]) -> None:
    """Raise where two tensors of the same storage have numbers in common."""
    if len(tensors) == 1:
        return
    unit = min(tensor.itemsize for tensor in tensors)
    owners = torch.zeros(tensors[0].untyped_storage().nbytes() // unit, dtype=torch.int32)
    for number, tensor in enumerate(tensors, 1):
        units = tensor.itemsize // unit
        places = [
            (size if stride else min(size, 1), stride * units)
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        ]
        sizes, strides = zip(*places, (units, 1), strict=True)
        own = owners.as_strided(sizes, strides, tensor.storage_offset() * units)
        if own.any():
            other = names[tensors[int(own.max()) - 1]]
            raise PluginError(
                f"{names[tensor]} shares memory with {other}, and each would be trained alone; "
                "give both names the same Parameter, or one of them a copy: .clone()"
            )
        own.fill_(number)


@contextmanager
def single_precision(*, tf32: bool = False) -> Iterator[None]:
    """Products and convolutions of float32 in here are in float32, or in TF32 (10 bits) on a GPU
    that has it, whatever torch would do: left alone, cuDNN's convolutions use TF32.
    """
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = tf32
    try:
        yield
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed
