"""Kernels of GPUs in Triton's interpreter, on CPU tensors: for processes that were started with TRITON_INTERPRET=1."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch

from subquad.nn.kernels import Operation


def on_cpu(monkeypatch: pytest.MonkeyPatch, operation: Operation) -> None:
    """Let what is made for CUDA take CPU tensors; it is then the first choice."""
    assert os.environ["TRITON_INTERPRET"] == "1"
    moved = [replace(one, devices=("cpu",)) if one.devices == ("cuda",) else one for one in operation.implementations]
    monkeypatch.setitem(vars(operation), "implementations", moved)


def fill_with_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors are full of NaN, so that a number that a kernel does not write is seen."""
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *args, _make=make, **kwargs: _make(*args, **kwargs).fill_(torch.nan))


def assert_near(got: Iterable[torch.Tensor], expected: Iterable[torch.Tensor], tolerance: float = 2e-6) -> None:
    """Every tensor within a share of the largest value that is expected of it, or of 1."""
    for ours, theirs in zip(got, expected, strict=True):
        gap = (ours.detach().double() - theirs.detach()).abs().max()
        assert gap <= tolerance * max(1.0, float(theirs.detach().abs().max()))
