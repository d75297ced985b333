"""Dropout from 16 bits: rates, scale, gradients, seeds, number formats, and where torch's runs
instead.
"""

from __future__ import annotations

import pytest
import torch

from subquad_check.calls import NoDropout
from subquad_plugins.numerics import dropout as numerics
from subquad_plugins.numerics.dropout import Dropout, dropout

N = 300_003
"""Enough for the faster generator."""


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_drops_as_many_as_it_says_and_scales_the_others(p, dtype):
    torch.manual_seed(0)
    out = dropout(torch.ones(N, dtype=dtype), p)
    dropped = round(p * 65536) / 65536
    assert out.dtype == dtype
    assert float((out == 0).double().mean()) == pytest.approx(
        dropped, abs=5 * (p * (1 - p) / N) ** 0.5
    )
    assert set(out.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - dropped), dtype=dtype))}


def test_neighbours_and_draws_are_independent():
    torch.manual_seed(0)
    first, second = (dropout(torch.ones(N), 0.5) == 0 for _ in range(2))
    for other in (second, *(first.roll(lag) for lag in (1, 2, 3, 4, 5))):
        assert float((first & other).double().mean()) == pytest.approx(0.25, abs=0.007)


def test_the_gradient_has_the_mask_of_the_values():
    x = torch.randn(3, 7, 5).transpose(0, 2).requires_grad_()
    out = dropout(x, 0.3)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, grad * x)
    assert out.shape == x.shape


def test_a_seed_gives_the_mask_again_and_in_every_format():
    masks = []
    for dtype in (torch.float32, torch.float32, torch.float64):
        torch.manual_seed(3)
        masks.append(torch.cat([dropout(torch.ones(n, dtype=dtype), 0.2) == 0 for n in (999, N)]))
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_evaluation_and_a_rate_of_0_change_and_draw_nothing():
    x, before = torch.randn(9), torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("p", [1.0, 1e-9])
def test_where_no_mask_of_16_bits_fits_torch_runs(p):
    assert torch.equal(dropout(torch.ones(50), p), torch.ones(50) * (p < 1))
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)


def test_under_a_compiler_torch_runs_and_in_autocast_the_format_stays(monkeypatch):
    module = Dropout(0.5)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(torch.ones(4)).dtype == torch.float32
    monkeypatch.setattr(numerics, "_Dropped", None)
    torch.manual_seed(0)
    compiled = torch.compile(module, backend="eager", fullgraph=True)(torch.ones(64))
    assert set(compiled.tolist()) == {0.0, 2.0}


def test_the_certificate_can_switch_it_off():
    x = torch.ones(8)
    with NoDropout():
        assert dropout(x, 0.5) is x
