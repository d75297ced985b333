"""The AGF mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import assert_close, built, drawn

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.agf import Config, folded
from subquad_plugins.agf.mixer import AGF


def build(*, dim=12, heads=3, dtype=torch.float64, **params: Any) -> Any:
    return built("agf", params, dtype=dtype, dim=dim, num_heads=heads)


def padding(batch: int, length: int) -> torch.Tensor:
    keep = torch.ones(batch, length, dtype=torch.bool)
    keep[0, length // 2 + 1 :] = False
    return keep


def results(mixer, x, keep):
    """Output, loss and all gradients of random weights."""
    x = x.detach().requires_grad_()
    result = mixer(x, keep=keep)
    draw = torch.Generator().manual_seed(5)
    total = (result.out * torch.randn(x.shape, generator=draw, dtype=x.dtype)).sum()
    total = total + sum(
        (loss * (2 + torch.arange(len(x)))).sum() for loss in result.losses.values()
    )
    return [
        result.out,
        *result.losses.values(),
        *torch.autograd.grad(total, [x, *mixer.parameters()]),
    ]


@pytest.mark.parametrize("tile", [12, 50, 400, 1 << 18])
@pytest.mark.parametrize(
    "params", [{"order": 5}, {"order": 1, "ortho_weight": 0.0}, {"order": 12}], ids=str
)
def test_the_folded_layer_equals_the_composed_one_in_tiles_of_any_size(monkeypatch, tile, params):
    monkeypatch.setattr(folded, "TILE", tile)
    mixer, x, keep = build(**params), drawn(5, 14, 12), padding(5, 14)
    keep[2] = False
    for mask in (None, keep):
        with using({"agf.layer": "folded"}):
            got = results(mixer, x, mask)
        with using({"agf.layer": "reference"}):
            expected = results(mixer, x, mask)
        assert_close(got, expected, 1e-11, 1e-12)


def test_the_layer_is_folded_where_that_is_quicker_and_nobody_looks_inside():
    def ran(mixer, length, **forced):
        with using(forced.get("forced", {})) as used:
            mixer(drawn(2, length, 12))
        return used

    mixer = build()
    assert ran(mixer, 12) == {"agf.layer": "folded"}
    assert ran(mixer, 11) == {"agf.core": "reference", "agf.filter": "in-place"}
    assert ran(mixer, 12, forced={"agf.filter": "reference"})["agf.filter"] == "reference"
    assert ran(build(form="uv"), 12) == {"agf.core": "reference"}
    mixer.value.register_forward_hook(lambda *_: None)
    assert "agf.layer" not in ran(mixer, 12)


@pytest.mark.parametrize("params", [{}, {"form": "uv"}, {"vector_activation": "tanh"}], ids=str)
def test_joined_projections_equal_those_that_somebody_looks_at(params):
    """Two samples of 11 tokens, more than the 12 features, so the products are joined."""
    mixer, x, keep = build(**params), drawn(2, 11, 12), padding(2, 11)
    got = results(mixer, x, keep)
    seen = []
    mixer.v.register_forward_hook(lambda *given: seen.append(given[2]))
    assert_close(got, results(mixer, x, keep), 1e-12, 1e-12)
    assert [value.shape for value in seen] == [(2, 11, 12)]


def test_identity_filter_equals_form_uv():
    full, uv = build(ortho_weight=0.0), build(ortho_weight=0.0, form="uv")
    with torch.no_grad():
        full.filter.theta.zero_()
    uv.load_state_dict(
        {name: value for name, value in full.state_dict().items() if name in uv.state_dict()}
    )
    constant = AGF(Config(order=0, ortho_weight=0.0), Site(dim=12, num_heads=3)).double()
    constant.load_state_dict(uv.state_dict())
    torch.testing.assert_close(
        full(drawn(2, 7, 12)).out, uv(drawn(2, 7, 12)).out, rtol=1e-13, atol=1e-13
    )
    assert torch.equal(constant(drawn(2, 7, 12)).out, uv(drawn(2, 7, 12)).out)


def test_svd_scalar_starts_as_form_uv():
    scalar: Any = AGF(Config(form="svd_scalar"), Site(dim=12, num_heads=3)).double()
    uv = AGF(Config(form="uv"), Site(dim=12, num_heads=3)).double()
    uv.load_state_dict(
        {name: value for name, value in scalar.state_dict().items() if name != "singular"}
    )
    assert scalar.singular.shape == (3, 4)
    assert torch.equal(scalar(drawn(2, 7, 12)).out, uv(drawn(2, 7, 12)).out)


def test_without_mask_padding_padded_tokens_take_part():
    mixer, x = build(mask_padding=False), drawn(2, 7, 12)
    assert torch.equal(mixer(x, keep=padding(2, 7)).out, mixer(x).out)


def test_half_precision_holds_weights_below_its_smallest_number():
    mixer = build(dim=4, heads=1, dtype=torch.float32, ortho_weight=0.0)
    # equal tokens: each weight in V is 2.5e-5, below fp16's normal numbers
    x = torch.ones(1, 40_000, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        out = mixer(x).out
    torch.testing.assert_close(out[0, 0].float(), mixer(x[:, :2]).out[0, 0], rtol=1e-2, atol=1e-2)


def test_state_holds_weights_and_coefficients_only():
    projections = {
        f"{name}.{part}"
        for name in ("u", "v", "sigma", "value", "out")
        for part in ("weight", "bias")
    }
    assert set(build().state_dict()) == projections | {"filter.theta"}
    assert build(order=4).filter.theta.shape == (4,)
    assert build(order=4, fix_identity=False).filter.theta.shape == (5,)
