"""The selective scan's kernels against the reference in float64: values, last states and all
gradients.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, count_traffic, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad_plugins.numerics import selective_scan_kernel
from subquad_plugins.numerics.selective_scan import _SCAN


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _SCAN)
    for tile in (selective_scan_kernel.FORWARD, selective_scan_kernel.BACKWARD):
        monkeypatch.setitem(tile, "channels", 8)


def drawn(batch, length, channels, states, dtype=torch.float32):
    """u, dt, gate, b, c, a, bias, skip and the first state; the gate is part of a wider tensor,
    and the last tokens are padding.
    """
    draw = torch.Generator().manual_seed(length * channels + states)
    u, dt, wide = (torch.randn(batch, length, n * channels, generator=draw) for n in (1, 1, 2))
    b, c = torch.randn(2, batch, length, states, generator=draw)
    dt[:, length - length // 4 :] = -torch.inf
    a = -torch.rand(channels, states, generator=draw) * 4
    bias, skip = torch.randn(2, channels, generator=draw)
    start = torch.randn(batch, channels, states, generator=draw)
    halves = [tensor.to(dtype) for tensor in (u, dt - 1, wide)]
    return *halves[:2], halves[2][..., channels:], b, c, a, bias, skip, start


def results(given, forced):
    """The reference's are of float64."""
    dtype = torch.float64 if forced == "reference" else None
    leaves = [tensor.detach().to(dtype or tensor.dtype).requires_grad_() for tensor in given]
    u, dt, gate, b, c, a, bias, skip, start = leaves
    with using({"mamba.scan": forced} if forced else {}) as used:
        y, last = _SCAN(u, dt, a, b, c, start, False, bias, skip, gate)
    assert used["mamba.scan"] == (forced or "triton")
    draw = torch.Generator().manual_seed(9)
    weights = [torch.randn(out.shape, generator=draw).to(out.dtype) for out in (y, last)]
    return [y, last, *torch.autograd.grad((y, last), leaves, weights)]


@pytest.mark.parametrize(
    ("length", "channels", "states"), [(1, 1, 1), (5, 9, 3), (70, 8, 4), (17, 12, 16)]
)
def test_values_and_gradients(monkeypatch, length, channels, states):
    """Chunks that are not full, blocks of channels and widths of states that are not."""
    monkeypatch.setattr(selective_scan_kernel, "CHUNK", 16)
    fill_with_nan(monkeypatch)
    given = drawn(2, length, channels, states)
    assert_near(results(given, ""), results(given, "reference"), 3e-6)


def test_half_precision_is_read_and_written_as_such():
    given = drawn(1, 9, 8, 4, torch.bfloat16)
    got = results(given, "")
    assert [tensor.dtype for tensor in got[:5]] == [
        torch.bfloat16,
        torch.float32,
        *[torch.bfloat16] * 3,
    ]
    assert_near(got, results(given, "reference"), 2 * torch.finfo(torch.bfloat16).eps)


def test_it_reads_and_writes_each_number_of_tokens_a_few_times(monkeypatch):
    """In numbers of u: 3 loads and a store forward, 7 loads and 3 stores backward. For blocks of 8
    channels b, c and their gradients are an eighth each; states are a quarter, at the start of
    each tile of 4 tokens.
    """
    given = [tensor.requires_grad_() for tensor in drawn(1, 64, 16, 1)]
    u, dt, gate, b, c, a, bias, skip, start = given
    traffic = count_traffic(monkeypatch)
    y, _ = _SCAN(u, dt, a, b, c, start, False, bias, skip, gate)
    counts = [*traffic.taken()]
    y.sum().backward()
    counts += traffic.taken()
    expected = [3 + 2 / 8, 1, 7 + 3 / 8, 3 + 2 / 8 + 1 / 4]
    for count, wanted in zip(counts, expected, strict=True):
        assert wanted <= count / (4 * u.numel()) <= wanted + 0.1
