"""AGF and its oracle against the authors' UEA layer: outputs, loss, every gradient, in float64
and float32.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_files import golden_files

from subquad.plugin import Site
from subquad_plugins.agf import Config
from subquad_plugins.agf.mixer import AGF
from subquad_plugins.agf.naive import agf

LAYERS = golden_files("agf layer")
NAMES = {"u": "U", "v": "V", "sigma": "S", "value": "val", "out": "out"}


def config_of(arrays) -> Config:
    chosen: dict[str, Any] = {
        "order": int(arrays["K"]),
        "basis": arrays["poly"],
        "mask_padding": False,
    }
    if arrays["poly"] == "jacobi":
        chosen |= {"jacobi_a": float(arrays["a"]), "jacobi_b": float(arrays["b"])}
    return Config(**chosen, fix_identity=bool(arrays["fixI"]))


def official_layer(arrays, dtype: torch.dtype) -> Any:
    """A mixer with the weights of a golden layer."""
    config = config_of(arrays)
    mixer = AGF(config, Site(dim=arrays["x"].shape[-1], num_heads=int(arrays["heads"]))).to(dtype)
    state = {f"{ours}.weight": arrays[f"W_{theirs}"] for ours, theirs in NAMES.items()}
    state |= {f"{ours}.bias": arrays[f"b_{theirs}"] for ours, theirs in NAMES.items()}
    state["filter.theta"] = arrays["theta"][int(config.fix_identity) :]
    mixer.load_state_dict(state)
    return mixer


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_loss_equal_the_authors(golden, assert_close, name):
    arrays = golden(name)
    for dtype, bits, tolerance in ((torch.float64, 64, 1e-12), (torch.float32, 32, 2e-5)):
        result = official_layer(arrays, dtype)(arrays["x"].to(dtype))
        assert_close(result.out, arrays[f"out{bits}"], tolerance)
        assert_close(result.losses["ortho"], arrays[f"ortho{bits}"], tolerance)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_the_authors(golden, assert_close, name):
    arrays = golden(name)
    mixer, x = official_layer(arrays, torch.float64), arrays["x"].requires_grad_()
    result = mixer(x)
    (
        (result.out * arrays["grad_w_weighting"]).sum() + 0.3 * result.losses["ortho"].sum()
    ).backward()
    assert_close(x.grad, arrays["grad_x"], 1e-12)
    for ours, theirs in NAMES.items():
        assert_close(mixer.get_parameter(f"{ours}.weight").grad, arrays[f"grad_W_{theirs}"], 1e-12)
    assert_close(
        mixer.filter.theta.grad, arrays["grad_theta"][int(mixer.config.fix_identity) :], 1e-12
    )


@pytest.mark.parametrize("name", LAYERS)
def test_the_oracle_equals_the_authors(golden, assert_close, name):
    arrays = golden(name)
    mixer = official_layer(arrays, torch.float64)
    out, loss = agf(arrays["x"], mixer.state_dict(), mixer.config, mixer.num_heads)
    assert_close(out, arrays["out64"], 1e-12)
    assert_close(loss, arrays["ortho64"], 1e-12)


def test_a_filter_that_starts_at_zero_gives_the_output_bias(golden):
    arrays = golden("agf_uea_init_fixIoff_K4")
    out = official_layer(arrays, torch.float64)(arrays["x"]).out
    assert torch.equal(out, arrays["b_out"].expand_as(out))
