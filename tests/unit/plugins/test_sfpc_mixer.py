"""The SFPC mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
    "given": {"operator": "circulant", "first_column": (0.5, 0.25, -0.25, 0.1, 0.0, 0.0, 0.3), "order": 2},
    "circulant by Horner": {"operator": "circulant", "evaluation": "reference", "order": 3},
}
MASKS = {
    "none": None,
    "right": torch.tensor([[1] * 7, [1] * 3 + [0] * 4]).bool(),
    "left": torch.tensor([[1] * 7, [0] * 4 + [1] * 3]).bool(),
    "gaps and nothing": torch.tensor([[1, 0, 1, 1, 0, 0, 1], [0] * 7]).bool(),
}


def build(params, seed=1, *, dim=4, heads=2, max_len=7, dtype=torch.float64) -> Any:
    """A mixer none of whose parameters is at its start."""
    torch.manual_seed(seed)
    mixer = SFPC(Config(**params), Site(dim=dim, num_heads=heads, max_len=max_len)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return mixer


def tokens(batch=2, length=7, dim=4, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).to(dtype)


def gradients(y, inputs):
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    return torch.autograd.grad((y * weights).sum(), inputs)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_and_gradients_equal_the_oracle(name, mask):
    mixer, x, keep = build(CONFIGS[name]), tokens().requires_grad_(), MASKS[mask]
    weights = dict(mixer.named_parameters())
    inputs = (x, *weights.values())
    y, expected = mixer(x, keep=keep), naive.mixer(x, weights, mixer.config, keep)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients(y, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in CONFIGS if Config(**CONFIGS[name]).operator != "circulant"])
def test_padding_before_and_behind_changes_nothing(name):
    mixer, x = build(CONFIGS[name]), tokens(length=5)
    alone = mixer(x)
    for before, behind in ((0, 4), (3, 0), (2, 6)):
        padded = torch.nn.functional.pad(x, (0, 0, before, behind), value=float("nan"))
        keep = torch.nn.functional.pad(torch.ones(2, 5, dtype=torch.bool), (before, behind))
        found = mixer(padded.nan_to_num(7.0) if mixer.gate is not None else padded, keep=keep)[:, before : before + 5]
        torch.testing.assert_close(found, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_has_a_gradient_from_the_start(name):
    mixer = SFPC(Config(**CONFIGS[name]), Site(dim=4, num_heads=2, max_len=7))
    mixer(tokens(dtype=torch.float32)).square().sum().backward()
    for parameter in mixer.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


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
    x = tokens(length=30, dtype=torch.float32)
    with torch.no_grad():
        assert 0 < float((mixer(x) - x).norm() / x.norm()) < 0.1


@pytest.mark.parametrize(("coefficients", "rows"), [("shared", 1), ("head", 2), ("channel", 4)])
def test_number_of_polynomials(coefficients, rows):
    mixer = SFPC(Config(coefficients=coefficients, projections=False), Site(dim=4, num_heads=2))
    assert [p.shape for p in mixer.parameters()] == [(rows, 9)]


@pytest.mark.parametrize("mask", ["none", "right"])
@pytest.mark.parametrize("params", [{"order": 3}, {"order": 12, "gate": "silu"}, {"projections": False}])
def test_decoding_equals_the_whole_sequence(params, mask):
    mixer, x = build({"operator": "shift", **params}), tokens(length=12)
    lengths = [7, 7] if mask == "none" else [7, 3]
    out, cache = mixer.prefill(x[:, :7], keep=MASKS[mask])
    whole = mixer(x)
    for sample, length in enumerate(lengths):
        torch.testing.assert_close(out[sample, :length], whole[sample, :length], rtol=1e-12, atol=1e-12)
    for further in range(5):
        token = torch.stack([x[sample, length + further] for sample, length in enumerate(lengths)])
        before = cache["past"].clone()
        y, after = mixer.step(token, cache)
        assert torch.equal(cache["past"], before)
        expected = torch.stack([whole[sample, length + further] for sample, length in enumerate(lengths)])
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        cache = after


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("params", [{"order": 3}, {"order": 12, "gate": "silu", "evaluation": "fft"}])
def test_decoding_starts_from_nothing(params, masked):
    mixer, x = build({"operator": "shift", **params}), tokens()
    keep = torch.ones(2, 0, dtype=torch.bool) if masked else None
    out, cache = mixer.prefill(x[:, :0], keep=keep)
    assert out.shape == (2, 0, 4)
    assert cache["past"].shape == (2, params["order"], 4)
    assert not cache["past"].any()
    whole = mixer(x)
    for place in range(7):
        y, cache = mixer.step(x[:, place], cache)
        torch.testing.assert_close(y, whole[:, place], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_no_tokens_give_none(name):
    assert build(CONFIGS[name])(tokens()[:, :0]).shape == (2, 0, 4)


def test_only_the_shift_decodes():
    mixer = build({})
    assert not mixer.caches
    with pytest.raises(PluginError, match="SFPC offers no decode cache"):
        mixer.prefill(tokens())
    with pytest.raises(PluginError, match="SFPC offers no decode cache"):
        mixer.step(tokens()[:, 0], {})


def test_a_circulants_length_is_bound():
    mixer = build({"operator": "circulant"}, max_len=5)
    with pytest.raises(PluginError, match="sfpc: 7 tokens, and the circulant's first column has 5 values"):
        mixer(tokens())
    assert mixer(tokens(length=3)).shape == (2, 3, 4)
    with pytest.raises(PluginError, match="a learned first_column needs the longest sequence's length"):
        build({"operator": "circulant"}, max_len=0)
    assert build({"operator": "circulant", "first_column": "decay"}, max_len=0)(tokens()).shape == (2, 7, 4)


def test_a_learned_column_cannot_make_powers_grow():
    mixer = build({"operator": "circulant", "order": 64, "projections": False}, max_len=64)
    with torch.no_grad():
        mixer.polynomial.first_column.mul_(1e4)
        x = tokens(length=64)
        assert float(mixer(x).norm()) <= float(mixer.polynomial.coefficients.abs().sum(1).max() * x.norm())


@pytest.mark.parametrize("name", ["default", "shift", "circulant", "transform", "recurrence"])
def test_bf16_autocast_keeps_the_operator_in_single_precision(name):
    mixer = build(CONFIGS[name], dtype=torch.float32)
    x = tokens(dtype=torch.float32)
    exact = mixer(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        y = mixer(x)
        grads = torch.autograd.grad(y.float().square().sum(), list(mixer.parameters()))
    assert float((y.detach().float() - exact).abs().max()) <= 0.03 * float(exact.abs().max())
    assert all(grad.isfinite().all() for grad in grads)


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


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
@pytest.mark.parametrize("mask", ["none", "left"])
@pytest.mark.parametrize("name", BARE)
def test_autocast_changes_neither_outputs_nor_gradients_of_the_operator(name, mask, inside):
    mixer = build({"projections": False, **BARE[name]}, dtype=torch.float32)
    x, keep = tokens(dtype=torch.float32).requires_grad_(), MASKS[mask]
    inputs = (x, *mixer.parameters())
    expected = mixer(x, keep=keep)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixer(x, keep=keep)
        found = gradients(y, inputs) if inside else ()
    found = found or gradients(y, inputs)
    assert y.dtype == torch.float32
    for ours, theirs in zip((y, *found), (expected, *gradients(expected, inputs)), strict=True):
        assert float((ours - theirs).detach().abs().max()) <= 1e-6 * float(theirs.detach().abs().max())


def test_autocast_does_not_reach_decoding():
    mixer = build({"operator": "shift", "projections": False}, dtype=torch.float32)
    x = tokens(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        _, cache = mixer.prefill(x[:, :6])
        y, _ = mixer.step(x[:, 6], cache)
    torch.testing.assert_close(y, mixer(x)[:, 6], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["jacobi", "jacobi by FFT", "rescaled", "given"])
def test_a_model_cast_to_half_rounds_its_weights_and_nothing_else(name, dtype):
    params = {"projections": False, **{**CONFIGS, **BARE}[name]}
    x = tokens(dtype=torch.float32)
    half, rounded = build(params).to(dtype), build(params).to(dtype).float()
    assert torch.equal(half.polynomial(x), rounded.polynomial(x))
    again = build(params)
    with torch.no_grad():
        for parameter, value in zip(again.parameters(), half.parameters(), strict=True):
            parameter.copy_(value)
    torch.testing.assert_close(half.float().polynomial(x), again.polynomial(x.double()).float(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("order", [8, 64])
@pytest.mark.parametrize("operator", ["laplacian", "shift"])
def test_the_default_way_in_single_precision(operator, order):
    mixer = build({"operator": operator, "order": order}, dtype=torch.float32, max_len=0)
    x = tokens(length=130, dtype=torch.float32).requires_grad_()
    y = mixer(x)
    weights = {name: value.detach().double() for name, value in mixer.named_parameters()}
    exact = naive.mixer(x.detach().double(), weights, mixer.config)
    assert float((y.detach() - exact).abs().max()) <= 2e-5 * float(exact.abs().max())
    assert all(grad.isfinite().all() for grad in gradients(y, (x, *mixer.parameters())))


@pytest.mark.ci
@pytest.mark.parametrize("name", VARIANTS)
def test_compiled_equals_eager_with_its_hand_written_gradients(name):
    torch.compiler.reset()
    mixer, x = build(VARIANTS[name]), tokens().requires_grad_()
    compiled = torch.compile(mixer, backend="aot_eager", fullgraph=True)
    inputs = (x, *mixer.parameters())
    for keep in (None, MASKS["right"]):
        y, expected = compiled(x, keep=keep), mixer(x, keep=keep)
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(gradients(y, inputs), gradients(expected, inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
