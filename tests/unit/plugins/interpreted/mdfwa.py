"""MDFWA's fusion against the reference in float64: values and gradients, with and without a
gate.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.mdfwa import Config
from subquad_plugins.mdfwa.fusion import _FUSION
from subquad_plugins.mdfwa.mixer import MDFWA


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _FUSION)


def results(tensors, implementation):
    """The output and all gradients, for random weights."""
    tensors = [tensor if tensor is None else tensor.detach().requires_grad_() for tensor in tensors]
    with using({"mdfwa.fusion": implementation}):
        out = _FUSION(*tensors)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    return [
        out,
        *torch.autograd.grad(
            (out.double() * weights).sum(), [tensor for tensor in tensors if tensor is not None]
        ),
    ]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((1, 1, 1), "float32"), ((2, 35, 70), "float32"), ((3, 9, 4), "bfloat16")]
)
def test_values_and_gradients(monkeypatch, gated, shape, dtype):
    dtype = getattr(torch, dtype)
    draw = torch.Generator().manual_seed(shape[1])
    tensors = [
        (2 * torch.randn(size, generator=draw)).to(dtype)
        for size in (shape, shape, shape, shape[-1:])
    ]
    tensors[0] = tensors[0].mT.contiguous().mT
    tensors[2] = tensors[2] if gated else None
    expected = results(
        [tensor if tensor is None else tensor.double() for tensor in tensors], "reference"
    )
    fill_with_nan(monkeypatch)
    got = results(tensors, "triton")
    assert {tensor.dtype for tensor in got} == {dtype}
    assert_near(got, expected, 2 * torch.finfo(dtype).eps if dtype == torch.bfloat16 else 2e-6)


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float32, "triton"), (torch.float64, "reference")]
)
def test_the_mixer_takes_the_kernel_in_the_formats_it_has(dtype, expected):
    with using() as used:
        MDFWA(Config(gate="sigmoid"), Site(dim=4, num_heads=1)).to(dtype)(
            torch.ones(1, 9, 4, dtype=dtype)
        )
    assert used["mdfwa.fusion"] == expected


def test_a_bias_of_another_format_widens_the_output_as_in_the_reference():
    branches = [torch.ones(2, 3, 4, dtype=torch.bfloat16) for _ in range(2)]
    got, expected = (
        results([*branches, None, torch.ones(4)], way) for way in ("triton", "reference")
    )
    assert (
        [tensor.dtype for tensor in got]
        == [tensor.dtype for tensor in expected]
        == [torch.float32, *[torch.bfloat16] * 2, torch.float32]
    )
    assert_near(got, [tensor.double() for tensor in expected], 2**-7)
