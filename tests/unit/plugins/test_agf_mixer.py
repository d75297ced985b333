"""The AGF mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.agf import Config, folded
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.agf.naive import agf

CONFIGS = [
    {},
    {"order": 1, "jacobi_a": 2.0, "jacobi_b": -1.0},
    {"order": 12, "basis": "chebyshev", "coeff_activation": "none"},
    {"order": 5, "basis": "legendre", "sigma_map": "symmetric", "fix_identity": False},
    {"basis": "monomial", "ortho_norm": "frobenius"},
    {"order": 0},
    {"order": 0, "fix_identity": False},
    {"order": 0, "fix_identity": False, "coeff_activation": "none"},
    {"vector_activation": "none"},
    {"vector_activation": "sigmoid", "mask_padding": False},
    {"vector_activation": "tanh", "ortho_norm": "frobenius"},
    {"form": "uv"},
    {"form": "svd_scalar"},
]


def build(seed=1, *, dim=12, heads=3, dtype=torch.float64, **params: Any) -> Any:
    """A mixer none of whose parameters is at its start."""
    torch.manual_seed(seed)
    mixer = AGF(Config(**params), Site(dim=dim, num_heads=heads)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer


def tokens(batch=2, length=7, dim=12, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=dtype, generator=torch.Generator().manual_seed(3))


def padding(batch: int, length: int) -> torch.Tensor:
    keep = torch.ones(batch, length, dtype=torch.bool)
    keep[0, length // 2 + 1 :] = False
    return keep


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [7, 13])
def test_outputs_losses_and_gradients_equal_the_oracle(params, heads, masked, length):
    mixer, x = build(heads=heads, **params), tokens(length=length).requires_grad_()
    keep = padding(2, length) if masked else None
    weights = {name: value.detach().clone().requires_grad_() for name, value in mixer.state_dict().items()}
    result = mixer(x, keep=keep)
    out, loss = agf(x, weights, mixer.config, heads, keep)
    torch.testing.assert_close(result.out, out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(result.losses["ortho"], loss, rtol=1e-12, atol=1e-12)

    names = list(weights)
    cotangent = torch.randn_like(out)
    got = torch.autograd.grad(
        (result.out * cotangent).sum() + result.losses["ortho"].sum(),
        [x, *(mixer.get_parameter(name) for name in names)],
    )
    expected = torch.autograd.grad((out * cotangent).sum() + loss.sum(), [x, *(weights[name] for name in names)])
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def results(mixer, x, keep):
    """Output, loss and all gradients of random weights."""
    x = x.detach().requires_grad_()
    result = mixer(x, keep=keep)
    draw = torch.Generator().manual_seed(5)
    total = (result.out * torch.randn(x.shape, generator=draw, dtype=x.dtype)).sum()
    total = total + sum((loss * (2 + torch.arange(len(x)))).sum() for loss in result.losses.values())
    return [result.out, *result.losses.values(), *torch.autograd.grad(total, [x, *mixer.parameters()])]


@pytest.mark.parametrize("tile", [12, 50, 400, 1 << 18])
@pytest.mark.parametrize("params", [{"order": 5}, {"order": 1, "ortho_weight": 0.0}, {"order": 12}], ids=str)
def test_the_folded_layer_equals_the_composed_one_in_tiles_of_any_size(monkeypatch, tile, params):
    monkeypatch.setattr(folded, "TILE", tile)
    mixer, x, keep = build(**params), tokens(batch=5, length=14), padding(5, 14)
    keep[2] = False
    for mask in (None, keep):
        with using({"agf.layer": "folded"}):
            got = results(mixer, x, mask)
        with using({"agf.layer": "reference"}):
            expected = results(mixer, x, mask)
        for ours, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_the_layer_is_folded_where_that_is_quicker_and_nobody_looks_inside():
    def ran(mixer, length, **forced):
        with using(forced.get("forced", {})) as used:
            mixer(tokens(length=length))
        return used

    mixer = build()
    assert ran(mixer, 12) == {"agf.layer": "folded"}
    assert ran(mixer, 11) == {"agf.core": "reference", "agf.filter": "in-place"}
    assert ran(mixer, 12, forced={"agf.filter": "reference"})["agf.filter"] == "reference"
    assert ran(build(form="uv"), 12) == {"agf.core": "reference"}
    mixer.value.register_forward_hook(lambda *_: None)
    assert "agf.layer" not in ran(mixer, 12)


WITHOUT_LOSS = [{**params, "ortho_weight": 0.0} for params in CONFIGS if "ortho_norm" not in params]


@pytest.mark.parametrize("params", CONFIGS + WITHOUT_LOSS, ids=str)
def test_every_parameter_receives_a_gradient_from_the_first_step(params):
    mixer = AGF(Config(**params), Site(dim=12, num_heads=3))
    result = mixer(tokens(dtype=torch.float32))
    (result.out.sum() + sum(loss.sum() for loss in result.losses.values())).backward()
    assert all(parameter.grad is not None for parameter in mixer.parameters())
    assert mixer.loss_weights == ({} if "ortho_weight" in params else {"ortho": 0.1})
    assert set(result.losses) == set(mixer.loss_weights)


def test_gradients_pass_gradcheck():
    mixer = build(dim=4, heads=2)
    x = tokens(length=3, dim=4).requires_grad_()

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = mixer(x, keep=padding(2, 3))
        return result.out, result.losses["ortho"]

    assert torch.autograd.gradcheck(both, (x,))


def test_identity_filter_equals_form_uv():
    full, uv = build(ortho_weight=0.0), build(ortho_weight=0.0, form="uv")
    with torch.no_grad():
        full.filter.theta.zero_()
    uv.load_state_dict({name: value for name, value in full.state_dict().items() if name in uv.state_dict()})
    constant = AGF(Config(order=0, ortho_weight=0.0), Site(dim=12, num_heads=3)).double()
    constant.load_state_dict(uv.state_dict())
    torch.testing.assert_close(full(tokens()).out, uv(tokens()).out, rtol=1e-13, atol=1e-13)
    assert torch.equal(constant(tokens()).out, uv(tokens()).out)


def test_svd_scalar_starts_as_form_uv():
    scalar: Any = AGF(Config(form="svd_scalar"), Site(dim=12, num_heads=3)).double()
    uv = AGF(Config(form="uv"), Site(dim=12, num_heads=3)).double()
    uv.load_state_dict({name: value for name, value in scalar.state_dict().items() if name != "singular"})
    assert scalar.singular.shape == (3, 4)
    assert torch.equal(scalar(tokens()).out, uv(tokens()).out)


@settings(deadline=None, max_examples=20)
@given(order=st.permutations(range(7)), heads=st.sampled_from([1, 2, 3, 4]))
def test_permuting_tokens_permutes_outputs(order, heads):
    mixer, x = build(heads=heads), tokens()
    result, permuted = mixer(x), mixer(x[:, order])
    torch.testing.assert_close(permuted.out, result.out[:, order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(permuted.losses["ortho"], result.losses["ortho"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rho", ["softmax", "sigmoid", "tanh", "none"])
def test_padding_does_not_reach_real_tokens(rho):
    mixer, keep = build(vector_activation=rho), padding(2, 9)
    x = tokens(length=9)
    garbage = x.masked_fill(~keep[..., None], 1e3)
    out = mixer(x, keep=keep).out
    torch.testing.assert_close(mixer(garbage, keep=keep).out[keep], out[keep], rtol=0, atol=0)
    torch.testing.assert_close(mixer(x[:1, :5]).out, out[:1, :5], rtol=1e-12, atol=1e-12)


def test_without_mask_padding_padded_tokens_take_part():
    mixer, x = build(mask_padding=False), tokens()
    assert torch.equal(mixer(x, keep=padding(2, 7)).out, mixer(x).out)


@pytest.mark.parametrize("params", CONFIGS, ids=str)
def test_a_sample_without_any_real_token_stays_finite(params):
    mixer, x = build(**params), tokens().requires_grad_()
    keep = padding(2, 7)
    keep[1] = False
    result = mixer(x, keep=keep)
    (result.out.sum() + result.losses["ortho"].sum()).backward()
    assert result.out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


@pytest.mark.parametrize("length", [1, 2, 13])
def test_any_length_and_strided_inputs(length):
    mixer, x = build(), tokens(length=length)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous() or length == 1
    torch.testing.assert_close(mixer(strided).out, mixer(x).out, rtol=1e-13, atol=1e-13)
    assert mixer(x).out.shape == x.shape


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_autocast_keeps_the_core_in_single_precision(dtype, tolerance):
    mixer, x = build(dtype=torch.float32), tokens(length=33, dtype=torch.float32)
    with torch.no_grad():
        expected = mixer(x)
    with torch.autocast("cpu", dtype=dtype):
        result = mixer(x)
    assert result.out.dtype == dtype
    assert result.losses["ortho"].dtype == torch.float32
    torch.testing.assert_close(
        result.out.float(), expected.out, rtol=0, atol=tolerance * float(expected.out.abs().max())
    )
    torch.testing.assert_close(result.losses["ortho"], expected.losses["ortho"], rtol=2e-2, atol=0)


def test_weights_in_bfloat16_work():
    mixer, x = build(dtype=torch.bfloat16), tokens(dtype=torch.bfloat16)
    assert mixer(x).out.dtype == torch.bfloat16


def test_half_precision_holds_weights_below_its_smallest_number():
    mixer = build(dim=4, heads=1, dtype=torch.float32, ortho_weight=0.0)
    x = torch.ones(1, 40_000, 4)  # equal tokens: each weight in V is 2.5e-5, below fp16's normal numbers
    with torch.autocast("cpu", dtype=torch.float16):
        out = mixer(x).out
    torch.testing.assert_close(out[0, 0].float(), mixer(x[:, :2]).out[0, 0], rtol=1e-2, atol=1e-2)


@pytest.mark.ci
def test_whole_mixer_compiles_into_one_graph():
    mixer, x = build(), tokens()
    compiled = torch.compile(mixer, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(x, keep=padding(2, 7)).out, mixer(x, keep=padding(2, 7)).out, rtol=1e-12, atol=1e-12
    )


def test_state_holds_weights_and_coefficients_only():
    projections = {f"{name}.{part}" for name in ("u", "v", "sigma", "value", "out") for part in ("weight", "bias")}
    assert set(build().state_dict()) == projections | {"filter.theta"}
    assert build(order=4).filter.theta.shape == (4,)
    assert build(order=4, fix_identity=False).filter.theta.shape == (5,)
