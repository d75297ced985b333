"""Attention between landmarks and tokens: kernels against the reference in float64, as CUR and
Nystrom use it.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.numerics import landmark_kernel
from subquad_plugins.numerics.landmarks import _ATTENTION


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _ATTENTION)


def inputs(queries, keys, width, v_width, dtype=torch.float32):
    draw = torch.Generator().manual_seed(queries + keys)
    shapes = ((queries, width), (keys, width), (keys, v_width))
    return [torch.randn(2, 2, *shape, generator=draw).to(dtype) for shape in shapes]


def results(tensors, mask, implementation):
    """The output and the gradients of q, k and v, for random weights."""
    tensors = [
        tensor.clone(memory_format=torch.preserve_format).requires_grad_() for tensor in tensors
    ]
    with using({"landmarks.attention": implementation}):
        out = _ATTENTION(*tensors, mask, 0.7)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    return [out, *torch.autograd.grad((out.double() * weights).sum(), tensors)]


def assert_same(tensors, mask=None, tolerance=5e-6):
    expected = results([tensor.double() for tensor in tensors], mask, "reference")
    assert_near(results(tensors, mask, "triton"), expected, tolerance)


@pytest.mark.parametrize("programs", [1, 20])
@pytest.mark.parametrize(
    ("queries", "keys", "width", "v_width"), [(1, 1, 3, 5), (7, 101, 8, 4), (101, 7, 4, 20)]
)
def test_values_and_gradients_in_one_part_or_several(
    monkeypatch, queries, keys, width, v_width, programs
):
    monkeypatch.setattr(landmark_kernel, "PROGRAMS", programs)
    assert_same(inputs(queries, keys, width, v_width))


@pytest.mark.parametrize("shape", [(2, 1, 1, 70), (2, 2, 1, 70)])
def test_masked_keys_are_not_seen(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[0, ..., :40] = False
    tensors = inputs(5, 70, 4, 4)
    assert_same(tensors, mask)
    hidden = ~mask.expand(2, 2, 1, 70)[:, :, 0, :, None]
    louder = [tensors[0], *(tensor.masked_fill(hidden, 1e4) for tensor in tensors[1:])]
    assert_near(results(louder, mask, "triton")[:1], results(tensors, mask, "triton")[:1], 0.0)


def test_a_query_that_sees_nothing_gets_nothing():
    mask = torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 9)
    out, *gradients = results(inputs(3, 9, 4, 4), mask, "triton")
    assert all(
        bool((tensor[1] == 0).all()) and bool(tensor[0].abs().sum() > 0)
        for tensor in (out, *gradients)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    tensors = inputs(4, 40, 8, 8, dtype)
    assert {result.dtype for result in results(tensors, None, "triton")} == {dtype}
    assert_same(tensors, tolerance=2 * torch.finfo(dtype).eps)


def test_any_strides_and_outputs_full_of_nan(monkeypatch):
    turned = [input.transpose(1, 2).contiguous().transpose(1, 2) for input in inputs(4, 40, 8, 8)]
    turned[0] = turned[0].mT.contiguous().mT
    fill_with_nan(monkeypatch)
    assert_same(turned)


def test_cur_attention_takes_the_kernel_for_both_sides():
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 45, 8, generator=draw) for _ in range(3))
    index = torch.arange(0, 40, 5).expand(2, 2, -1)
    keep = torch.arange(45) < torch.tensor([[45], [37]])
    found = []
    for forced, dtype in ((("", torch.float32)), ("reference", torch.float64)):
        tensors = [tensor.to(dtype).requires_grad_() for tensor in (q, k, v)]
        with using(forced) as used:
            out = cur_attention(*tensors, index, index, key_keep=keep, copy_rows=True)
        assert used == {"landmarks.attention": forced or "triton"}
        found.append([out, *torch.autograd.grad((out**2).sum(), tensors)])
    assert_near(*found, tolerance=5e-5)
