"""SFPC's kernels against the reference in float64: values and gradients, ends, masks, number
formats, strides.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad_plugins.sfpc.fir import _FIR

MATRICES = ["neumann", "dirichlet", "periodic", "shift", "cyclic"]
MASKS = {
    "right": torch.arange(7) < torch.tensor([[7], [4], [0]]),
    "gaps": torch.tensor(
        [[1, 1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1]]
    ).bool(),
}


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _FIR)


def results(x, a, matrix, keep, forced):
    """y and the gradients of x and a, by a given implementation, for random weights."""
    x, a = x.clone().requires_grad_(), a.clone().requires_grad_()
    with using({"sfpc.fir": forced} if forced else {}) as used:
        y = _FIR(x, a, matrix, keep, False)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(y.dtype)
        found = [y, *torch.autograd.grad((y * weights).sum(), (x, a))]
    assert used == {"sfpc.fir": forced or "triton"}
    return found


def inputs(batch, length, dim, order, dtype=torch.float32):
    draw = torch.Generator().manual_seed(length * dim + order)
    x = torch.randn(batch, length, dim, generator=draw).to(dtype)
    return x, torch.randn(dim, order + 1, generator=draw)


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize(("length", "dim", "order"), [(1, 1, 3), (5, 3, 8), (37, 66, 2)])
def test_values_and_gradients(matrix, length, dim, order):
    x, a = inputs(2, length, dim, order)
    assert_near(
        results(x, a, matrix, None, ""), results(x.double(), a.double(), matrix, None, "reference")
    )


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_each_sample_ends_at_its_last_real_token(matrix, mask):
    x, a = inputs(3, 7, 2, 5)
    x = x.masked_fill(~mask[..., None], torch.nan)
    wide = x.double()
    assert_near(
        results(x, a, matrix, mask, ""), results(wide, a.double(), matrix, mask, "reference")
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    x, a = inputs(2, 9, 4, 3, dtype)
    got = results(x, a, "neumann", None, "")
    assert [tensor.dtype for tensor in got] == [dtype, dtype, torch.float32]
    eps = torch.finfo(dtype).eps
    assert_near(got, results(x.double(), a.double(), "neumann", None, "reference"), 2 * eps)


def test_any_strides_and_an_output_full_of_nan(monkeypatch):
    x, a = inputs(2, 11, 6, 4)
    turned = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not turned.is_contiguous()
    fill_with_nan(monkeypatch)
    assert_near(
        results(turned, a, "neumann", None, ""),
        results(x.double(), a.double(), "neumann", None, "reference"),
    )


def test_second_derivatives():
    x, a = inputs(1, 5, 2, 2)
    found = []
    for forced, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        z, c = x.to(dtype).requires_grad_(), a.to(dtype).requires_grad_()
        with using({"sfpc.fir": forced}):
            y = _FIR(z, c, "neumann", None, False)
            (slope,) = torch.autograd.grad((y**3).sum(), z, create_graph=True)
            found.append(torch.autograd.grad((slope**2).sum(), (z, c)))
    assert_near(*found)
