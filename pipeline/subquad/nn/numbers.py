"""The numbers that a module computes with: their kinds, their memory, and what float32 means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from subquad.errors import PluginError

_KEPT = re.compile(r"torch\.(bool|u?int(8|16|32|64)|float32|complex64)")
"""Kinds of number that torch can copy and files have, where real ones are float32."""


def own_kind(tensor: Tensor, real: torch.dtype) -> torch.dtype:
    """The kind of number that a tensor has where real ones are `real`: complex ones stay complex,
    whole ones stay as they are.
    """
    if tensor.is_complex():
        return real.to_complex()
    if tensor.is_floating_point():
        return real
    return tensor.dtype


def dense(module: nn.Module, real: torch.dtype) -> None:
    """Give each parameter and buffer of a module memory of its own, one number after the other,
    with equal values in its own kind of number.

    Fused optimisers, copies between processes and files take memory as such. A weight that is a
    slice, a transpose or the result of `expand` is none. What is one tensor under two names stays
    one.

    Args:
        real: float32 or float64, for real numbers; complex ones get as many bits for each part.

    Raises:
        PluginError: a tensor is no plain one, or two have numbers in common.
    """
    names = dict[Tensor, str]()
    beside = defaultdict[int, list[Tensor]](list)
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if tensor in names or hasattr(tensor, "to_local"):  # of a block that was sharded before
            continue
        names[tensor] = name
        unusual = _unusual(tensor)
        if unusual:
            raise PluginError(f"{name} is {unusual}; a weight or buffer must be a plain tensor")
        others = beside[tensor.untyped_storage().data_ptr()]
        for other in others:
            memory = np.empty(tensor.untyped_storage().nbytes(), np.uint8)
            if np.shares_memory(_places(tensor, memory), _places(other, memory)):
                raise PluginError(
                    f"{name} shares memory with {names[other]}, and each would be trained alone; "
                    "give both names the same Parameter, or one of them a copy: .clone()"
                )
        others.append(tensor)
    for tensor in names:
        numbers = tensor.data.to(own_kind(tensor, real))
        tensor.data = numbers.resolve_conj().resolve_neg().contiguous()


def _unusual(tensor: Tensor) -> str:
    """Why a tensor is no plain one, in words; "" where it is."""
    if is_lazy(tensor):
        return "made in the first call"
    kinds = {
        f"of {tensor.layout}": tensor.layout is not torch.strided,
        f"of {tensor.dtype}": not _KEPT.fullmatch(str(own_kind(tensor, torch.float32))),
        f"a {type(tensor).__name__}": is_traceable_wrapper_subclass(tensor) or tensor.is_nested,
        "on the device meta, without values": tensor.is_meta,
        "made in inference mode": tensor.is_inference(),
    }
    return ", ".join(words for words, applies in kinds.items() if applies)


def _places(tensor: Tensor, memory: np.ndarray) -> np.ndarray:
    """Where a tensor lies in its storage."""
    size = tensor.itemsize
    strides = [size * stride for stride in tensor.stride()]
    return np.ndarray(tensor.shape, f"V{size}", memory, size * tensor.storage_offset(), strides)


@contextmanager
def single_precision(*, tf32: bool = False) -> Iterator[None]:
    """Products and convolutions of float32 in here are in float32, or in TF32 (10 bits) on a GPU
    that has it, whatever torch would do: left alone, cuDNN's convolutions use TF32.
    """
    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
