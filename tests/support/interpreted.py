"""Kernels of GPUs in Triton's interpreter, on CPU tensors: for processes that were started with
TRITON_INTERPRET=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from subquad.nn.kernels import Operation


def on_cpu(monkeypatch: pytest.MonkeyPatch, operation: Operation) -> None:
    """Let what is made for CUDA take CPU tensors; it is then the first choice."""
    assert os.environ["TRITON_INTERPRET"] == "1"
    moved = [
        replace(implementation, devices=("cpu",))
        if implementation.devices == ("cuda",)
        else implementation
        for implementation in operation.implementations
    ]
    monkeypatch.setitem(vars(operation), "implementations", moved)


def multiply_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of bf16 matrices, whose numbers the interpreter keeps as bits and multiplies as
    such.
    """
    from triton.language import float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot = InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if not handle.dtype.scalar.is_bf16():
            return handle
        return TensorHandle((handle.data.astype("uint32") << 16).view("float32"), float32)

    monkeypatch.setattr(
        InterpreterBuilder,
        "create_dot",
        lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest),
    )


def fill_with_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors are full of NaN, so that a number that a kernel does not write is seen."""

    def filled(make: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        made = make(*args, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() or made.is_complex() else made

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, partial(filled, getattr(torch, name)))


def assert_near(
    got: Iterable[torch.Tensor], expected: Iterable[torch.Tensor], tolerance: float = 2e-6
) -> None:
    """Every tensor within a share of the largest value that is expected of it, or of 1."""
    for ours, theirs in zip(got, expected, strict=True):
        gap = (ours.detach().double() - theirs.detach()).abs().max()
        assert gap <= tolerance * max(1.0, float(theirs.detach().abs().max()))


@dataclass
class Traffic:
    """What kernels ask of memory, tile by tile, in bytes: what a cache answers is counted too.

    Attributes:
        loaded: by loads; worker groups that a mask switches off are not counted.
        stored: by stores, likewise.
    """

    loaded: int = 0
    stored: int = 0

    def taken(self) -> tuple[int, int]:
        """Loaded and stored since the last call."""
        found = (self.loaded, self.stored)
        self.loaded = 0
        self.stored = 0
        return found


def count_traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Count what kernels load and store from now on, at the interpreter's own loads and stores."""
    from triton.runtime.interpreter import InterpreterBuilder

    traffic = Traffic()
    load = InterpreterBuilder.create_masked_load
    store = InterpreterBuilder.create_masked_store

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        traffic.loaded += int(mask.data.sum()) * _bytes_of(pointers)
        return load(self, pointers, mask, *rest)

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        traffic.stored += int(mask.data.sum()) * _bytes_of(pointers)
        return store(self, pointers, value, mask, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", counted_load)
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", counted_store)
    return traffic


def _bytes_of(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)
