"""The SFPC mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import built, drawn, gradients

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.sfpc import PLUGIN, Config, naive
from subquad_plugins.sfpc.mixer import SFPC

VARIANTS: dict[str, Any] = {"default": {}, **PLUGIN.variants}
CONFIGS: dict[str, Any] = {
    **VARIANTS,
    "bare": {"projections": False, "coefficients": "shared"},
    "per head": {"operator": "shift", "coefficients": "head", "order": 20},
    "long": {"order": 140},
    "rescaled": {"basis": "monomial_rescaled", "gate": "sigmoid"},
    "given": {
        "operator": "circulant",
        "first_column": (0.5, 0.25, -0.25, 0.1, 0.0, 0.0, 0.3),
        "order": 2,
    },
    "circulant by Horner": {"operator": "circulant", "evaluation": "reference", "order": 3},
}


def build(params: dict[str, Any], *, max_len=7, dtype=torch.float64) -> Any:
    site = {"dim": 4, "num_heads": 2, "max_len": max_len}
    return built("sfpc", params, by=0.1, dtype=dtype, **site)


NEAR_IDENTITY: list[Any] = [
    {},
    {"basis": "monomial", "order": 12},
    {"operator": "shift"},
    {"basis": "jacobi", "jacobi_a": 4.0, "order": 64},
    {"operator": "circulant"},
]


@pytest.mark.parametrize("params", NEAR_IDENTITY, ids=str)
def test_starts_close_to_the_identity(params):
    mixer = SFPC(Config(projections=False, **params), Site(dim=4, max_len=30))
    assert (mixer.polynomial.coefficients[:, 0] == 1).all()
    x = drawn(2, 30, 4, dtype=torch.float32)
    with torch.no_grad():
        assert 0 < float((mixer(x) - x).norm() / x.norm()) < 0.1


@pytest.mark.parametrize(("coefficients", "rows"), [("shared", 1), ("head", 2), ("channel", 4)])
def test_number_of_polynomials(coefficients, rows):
    mixer = SFPC(Config(coefficients=coefficients, projections=False), Site(dim=4, num_heads=2))
    assert [p.shape for p in mixer.parameters()] == [(rows, 9)]


def test_only_the_shift_decodes():
    mixer = build({})
    assert not mixer.caches
    with pytest.raises(PluginError, match="SFPC offers no decode cache"):
        mixer.prefill(drawn(2, 7, 4))
    with pytest.raises(PluginError, match="SFPC offers no decode cache"):
        mixer.step(drawn(2, 7, 4)[:, 0], {})


def test_a_circulants_length_is_bound():
    mixer = build({"operator": "circulant"}, max_len=5)
    with pytest.raises(
        PluginError, match="sfpc: 7 tokens, and the circulant's first column has 5 values"
    ):
        mixer(drawn(2, 7, 4))
    assert mixer(drawn(2, 3, 4)).shape == (2, 3, 4)
    assert build({"operator": "circulant", "first_column": "decay"}, max_len=0)(
        drawn(2, 7, 4)
    ).shape == (2, 7, 4)


def test_a_learned_column_cannot_make_powers_grow():
    mixer = build({"operator": "circulant", "order": 64, "projections": False}, max_len=64)
    with torch.no_grad():
        mixer.polynomial.first_column.mul_(1e4)
        x = drawn(2, 64, 4)
        assert float(mixer(x).norm()) <= float(
            mixer.polynomial.coefficients.abs().sum(1).max() * x.norm()
        )


BARE: dict[str, Any] = {
    "jacobi": {"basis": "jacobi", "jacobi_a": 0.5, "jacobi_b": -0.25, "order": 16},
    "jacobi by FFT": {"basis": "jacobi", "evaluation": "fft"},
    "jacobi by Clenshaw": {"basis": "jacobi", "evaluation": "reference"},
    "rescaled": {"basis": "monomial_rescaled", "coefficients": "head"},
    "dirichlet": {"boundary": "dirichlet", "evaluation": "fft"},
    "monomial": {"basis": "monomial", "order": 3},
    "chebyshev": {},
    "shift": {"operator": "shift"},
    "shift by FFT": {"operator": "shift", "evaluation": "fft"},
    "cyclic": {"operator": "cyclic"},
    "circulant": {"operator": "circulant"},
    "circulant by Horner": {"operator": "circulant", "evaluation": "reference", "order": 3},
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["jacobi", "jacobi by FFT", "rescaled", "given"])
def test_a_model_cast_to_half_rounds_its_weights_and_nothing_else(name, dtype):
    params = {"projections": False, **{**CONFIGS, **BARE}[name]}
    x = drawn(2, 7, 4, dtype=torch.float32)
    half, rounded = build(params).to(dtype), build(params).to(dtype).float()
    assert torch.equal(half.polynomial(x), rounded.polynomial(x))
    again = build(params)
    with torch.no_grad():
        for parameter, value in zip(again.parameters(), half.parameters(), strict=True):
            parameter.copy_(value)
    torch.testing.assert_close(
        half.float().polynomial(x), again.polynomial(x.double()).float(), rtol=2e-6, atol=2e-6
    )


@pytest.mark.parametrize("order", [8, 64])
@pytest.mark.parametrize("operator", ["laplacian", "shift"])
def test_the_default_way_in_single_precision(operator, order):
    mixer = build({"operator": operator, "order": order}, dtype=torch.float32, max_len=0)
    x = drawn(2, 130, 4, dtype=torch.float32).requires_grad_()
    y = mixer(x)
    weights = {name: value.detach().double() for name, value in mixer.named_parameters()}
    exact = naive.mixer(x.detach().double(), weights, mixer.config)
    assert float((y.detach() - exact).abs().max()) <= 2e-5 * float(exact.abs().max())
    assert all(grad.isfinite().all() for grad in gradients(y, (x, *mixer.parameters())))
