"""AGF's kernels against the reference in float64: values and gradients, parts, masks, number
formats, strides.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, multiply_bf16, on_cpu

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.agf import Config, kernel
from subquad_plugins.agf import core as agf_core
from subquad_plugins.agf.core import _CORE, WIDEST_WITH_GRAMS, Given, core
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.numerics.jacobi import basis_steps, in_y
from subquad_plugins.numerics.tiles import precision


def steps(order):
    return in_y(basis_steps("jacobi", order, 1.5, -0.5), "unit")


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _CORE)
    multiply_bf16(monkeypatch)


def inputs(batch, length, dim, dtype=torch.float32, order=3):
    draw = torch.Generator().manual_seed(length + dim)
    projected = torch.randn(batch, length, 4 * dim, generator=draw).to(dtype)
    return projected, torch.randn(order + 1, generator=draw)


def results(tensors, recurrence, keep, heads, implementation, grams=False):
    """The output, the products and all gradients, by one implementation, for random weights."""
    projected, coefficients = (
        tensor.clone(memory_format=torch.preserve_format).requires_grad_() for tensor in tensors
    )
    chosen = steps(len(coefficients) - 1) if recurrence else None
    with using({} if implementation == "triton" else {"agf.core": implementation}) as used:
        outputs = core(Given(projected, coefficients, chosen, keep, heads, grams=grams))
    assert used["agf.core"] == implementation
    outputs = [output for output in outputs if output is not None]
    assert len(outputs) == 1 + 2 * grams
    draw = torch.Generator().manual_seed(9)
    total = sum(
        (output.double() * torch.randn(output.shape, generator=draw)).sum() for output in outputs
    )
    return [*outputs, *torch.autograd.grad(total, [projected, coefficients])]


def assert_same(tensors, recurrence=True, keep=None, heads=2, tolerance=5e-6, grams=True):
    """Returns what the kernels give."""
    wide = [tensor.double() for tensor in tensors]
    expected = results(wide, recurrence, keep, heads, "reference", grams)
    got = results(tensors, recurrence, keep, heads, "triton", grams)
    assert_near(got, expected, tolerance)
    return got


@pytest.mark.parametrize(("length", "dim", "heads"), [(1, 3, 1), (33, 20, 2), (70, 6, 2)])
@pytest.mark.parametrize("recurrence", [True, False])
def test_values_and_gradients(length, dim, heads, recurrence):
    assert_same(inputs(2, length, dim), recurrence, heads=heads, grams=recurrence)


@pytest.mark.parametrize("order", [1, 2, 8, 16])
@pytest.mark.parametrize("recurrence", [True, False])
def test_any_order(order, recurrence):
    assert_same(inputs(1, 37, 12, order=order), recurrence, grams=not recurrence)


def test_the_products_of_a_wide_head_are_made_apart():
    width = WIDEST_WITH_GRAMS + 1
    assert_same(inputs(1, 3, width, torch.bfloat16), heads=1, tolerance=2**-6)


def test_without_products_no_vectors_are_made_for_them(monkeypatch):
    monkeypatch.setattr(agf_core, "_vectors", None)
    results(inputs(1, 3, 4), True, None, 2, "triton")


@pytest.mark.parametrize(
    ("programs", "dtype"),
    [
        (528, torch.float32),
        (1, torch.bfloat16),
        (528, torch.bfloat16),
        pytest.param(1, torch.float32, marks=pytest.mark.extended),
    ],
)
def test_parts_of_one_or_several_tiles_the_same_bits_every_time(monkeypatch, programs, dtype):
    monkeypatch.setattr(kernel, "PROGRAMS", programs)
    tensors = inputs(1, 300, 4, dtype)
    keep = torch.rand(1, 300, generator=torch.Generator().manual_seed(0)) < 0.6
    tolerance = max(5e-6, 2 * torch.finfo(dtype).eps * (dtype != torch.float32))
    first = assert_same(tensors, keep=keep, tolerance=tolerance)
    assert all(map(torch.equal, first, results(tensors, True, keep, 2, "triton", True)))


@pytest.mark.parametrize("heads", [1, 16, 100, 300, 512, 4096])
@pytest.mark.parametrize("length", [100, 4096, 16_384, 131_072])
def test_parts_fill_the_chip_and_have_a_token(heads, length):
    parts, span = kernel._parts(length, heads)
    tiles = -(-length // kernel.LONGEST)
    assert (parts - 1) * span < length <= parts * span
    assert parts * heads <= max(heads, kernel.PROGRAMS)
    assert parts * heads > min(kernel.PROGRAMS // 2 - heads, tiles * heads / 2 - 1)


@pytest.mark.parametrize("padding", ["anywhere", "left"])
def test_padding_and_a_sample_of_nothing_else(padding):
    keep = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) < 0.6
    if padding == "left":
        keep = torch.arange(40) >= torch.tensor([[17], [0], [40]])
    keep[2] = False
    assert_same(inputs(3, 40, 8), keep=keep)


def test_large_logits_do_not_overflow():
    projected, coefficients = inputs(1, 37, 4)
    projected[..., :4] *= 100
    projected[..., 8:12] *= 100
    assert_same([projected, coefficients])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    tensors = inputs(1, 35, 8, dtype)
    out, *_, by_tokens, by_coefficients = assert_same(tensors, tolerance=2 * torch.finfo(dtype).eps)
    found = [result.dtype for result in (out, by_tokens, by_coefficients)]
    assert found == [dtype, dtype, torch.float32]


@pytest.mark.parametrize(("allowed", "expected"), [("highest", "tf32x3"), ("high", "tf32")])
def test_products_of_float32_are_as_exact_as_torch_is_told(allowed, expected):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(allowed)
    try:
        assert precision(torch.float32) == expected
    finally:
        torch.set_float32_matmul_precision(before)


def test_any_strides_products_for_the_loss_and_outputs_full_of_nan(monkeypatch):
    projected, coefficients = inputs(2, 9, 6)
    turned = projected.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    fill_with_nan(monkeypatch)
    assert_same([turned, coefficients])


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
    for dim, expected in ((8, "triton"), (65, "reference")):
        with using() as used:
            AGF(Config(), Site(dim=dim, num_heads=1))(torch.ones(1, 3, dim))
        assert used["agf.core"] == expected
