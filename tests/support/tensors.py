"""Tensors that tests of mixers draw, pad and compare.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subquad.plugin import Site
from subquad.registry import build_class, resolve


def drawn(*shape: int, seed: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same ones in each dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def moved(module: nn.Module, by: float = 0.3, dtype: torch.dtype = torch.float64) -> Any:
    """The module in evaluation mode with none of its parameters where it started."""
    module = module.to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(by * step.to(dtype))
    return module


def built(
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    by: float = 0.3,
    dtype: torch.dtype = torch.float64,
    **site: Any,
) -> Any:
    """A built-in mixer at a site, none of whose parameters is where it started."""
    found = resolve("mixer", f"subquad:{name}")
    config: Any = found.plugin.config(**(params or {}))
    torch.manual_seed(1)
    return moved(build_class(found)(config, Site(**site)), by, dtype)


def padded_everywhere(length: int) -> Tensor:
    """A mask of four samples (4, L): padding behind, in front, between, and none."""
    keep = torch.ones(4, length, dtype=torch.bool)
    keep[0, length // 2 + 1 :] = False
    keep[1, : length // 3] = False
    keep[2, 1:2] = False
    return keep


def gradients(out: Tensor, inputs: Sequence[Tensor], weights: Tensor | None = None) -> Any:
    """Of the sum of the outputs, each with a drawn weight unless weights are given."""
    weights = drawn(*out.shape, seed=9, dtype=out.dtype) if weights is None else weights
    return torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True)


def assert_near(got: Tensor, expected: Tensor, tolerance: float) -> None:
    """The difference is at most this part of the largest number, or of 1."""
    assert got.shape == expected.shape
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    allowed = tolerance * max(1.0, largest)
    torch.testing.assert_close(got, expected, rtol=0, atol=allowed, check_dtype=False)


def assert_close(
    got: Iterable[Tensor], expected: Iterable[Tensor], rtol: float, atol: float | None = None
) -> None:
    """Each to its own; the absolute tolerance is that of the relative one unless given."""
    for ours, theirs in zip(got, expected, strict=True):
        allowed = rtol if atol is None else atol
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=allowed)


def assert_alike(
    got: Tensor, expected: Tensor, inputs: Sequence[Tensor], rtol: float, atol: float | None = None
) -> None:
    """The same numbers, and the same gradients of a weighted sum of them."""
    sides = [(out, *gradients(out, inputs)) for out in (got, expected)]
    assert_close(*sides, rtol, atol)
