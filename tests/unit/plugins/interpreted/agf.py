"""AGF's kernels against the reference in float64: values and gradients, parts, masks, number
formats, strides.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.agf import Config, kernel
from subquad_plugins.agf.core import _CORE, WIDEST_WITH_GRAMS, Given, core
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.numerics.jacobi import basis_steps, in_y

STEPS = in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit")


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _CORE)


def inputs(batch, length, dim, dtype=torch.float32):
    draw = torch.Generator().manual_seed(length + dim)
    tensors = [torch.randn(batch, length, dim, generator=draw).to(dtype) for _ in range(4)]
    return [*tensors, torch.randn(4, generator=draw)]


def results(tensors, steps, keep, heads, implementation, grams=False):
    """The output, the products and all gradients, by one implementation, for random weights."""
    tensors = [
        tensor.clone(memory_format=torch.preserve_format).requires_grad_() for tensor in tensors
    ]
    left, right, value, logits, coefficients = tensors
    with using({} if implementation == "triton" else {"agf.core": implementation}) as used:
        outputs = core(
            Given(left, right, value, logits, coefficients, steps, keep, heads, grams=grams)
        )
    assert used["agf.core"] == implementation
    outputs = [output for output in outputs if output is not None]
    draw = torch.Generator().manual_seed(9)
    total = sum(
        (output.double() * torch.randn(output.shape, generator=draw)).sum() for output in outputs
    )
    return [*outputs, *torch.autograd.grad(total, tensors)]


def assert_same(tensors, steps=STEPS, keep=None, heads=2, tolerance=5e-6, grams=True):
    wide = [tensor.double() for tensor in tensors]
    expected = results(wide, steps, keep, heads, "reference", grams)
    assert_near(results(tensors, steps, keep, heads, "triton", grams), expected, tolerance)


@pytest.mark.parametrize(("length", "dim", "heads"), [(1, 3, 1), (33, 20, 2), (70, 6, 2)])
@pytest.mark.parametrize("steps", [STEPS, None], ids=["recurrence", "powers"])
def test_values_and_gradients(length, dim, heads, steps):
    assert_same(inputs(2, length, dim), steps, heads=heads, grams=steps is None)


def test_the_products_of_a_wide_head_are_made_apart():
    assert_same(inputs(1, 3, WIDEST_WITH_GRAMS + 1), heads=1)


def test_long_parts_of_several_tiles(monkeypatch):
    monkeypatch.setattr(kernel, "MOST_PARTS", 2)
    assert_same(inputs(1, 100, 4))


def test_padding_anywhere_and_a_sample_of_nothing_else():
    keep = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) < 0.6
    keep[2] = False
    assert_same(inputs(3, 40, 8), keep=keep)


def test_large_logits_do_not_overflow():
    tensors = inputs(1, 37, 4)
    assert_same([100 * tensor for tensor in tensors[:2]] + tensors[2:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    tensors = inputs(1, 35, 8, dtype)
    assert [result.dtype for result in results(tensors, STEPS, None, 2, "triton")] == [
        *[dtype] * 5,
        torch.float32,
    ]
    assert_same(tensors, tolerance=2 * torch.finfo(dtype).eps)


def test_any_strides_products_for_the_loss_and_outputs_full_of_nan(monkeypatch):
    tensors = inputs(2, 9, 6)
    turned = [tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0) for tensor in tensors[:4]]
    fill_with_nan(monkeypatch)
    assert_same([*turned, tensors[4]])


@pytest.mark.parametrize(
    "params",
    [{"form": "uv"}, {"order": 0}, {"vector_activation": "tanh"}, {"form": "svd_scalar"}],
    ids=str,
)
def test_what_the_kernel_does_not_take_the_reference_computes(params):
    with using() as used:
        AGF(Config(**params), Site(dim=4, num_heads=1))(torch.ones(1, 3, 4))
    assert used["agf.core"] == "reference"


def test_the_mixer_takes_the_kernel_and_wide_heads_the_reference():
    for dim, expected in ((8, "triton"), (129, "reference")):
        with using() as used:
            AGF(Config(), Site(dim=dim, num_heads=1))(torch.ones(1, 3, dim))
        assert used["agf.core"] == expected
