"""State space models and scans: outputs of the authors' code; sizes come from the files' arrays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden_files import golden_files, load_golden
from torch import Tensor, nn

from subquad.plugin import Site
from subquad_plugins.mamba import Config as MambaConfig
from subquad_plugins.mamba.mixer import Mamba
from subquad_plugins.numerics.selective_scan import selective_scan
from subquad_plugins.s4d import Config as S4DConfig
from subquad_plugins.s4d.mixer import S4D
from subquad_plugins.s5 import Config as S5Config
from subquad_plugins.s5.mixer import S5

FLOAT32 = 2e-5
MAMBA = {
    "A_log": "log_decay",
    "D": "skip",
    "conv1d.weight": "conv.weight",
    "conv1d.bias": "conv.bias",
    "in_proj.weight": "enter.weight",
    "x_proj.weight": "select.weight",
    "dt_proj.weight": "dt.weight",
    "dt_proj.bias": "dt.bias",
    "out_proj.weight": "out.weight",
}


def weights(golden: dict[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
    """The file's weights, their names without prefixes."""
    found = {
        name.removeprefix("w."): weight for name, weight in golden.items() if name.startswith("w.")
    }
    for prefix in prefixes:
        found = {name.removeprefix(prefix): weight for name, weight in found.items()}
    return found


def loaded(mixer: nn.Module, **given: Tensor) -> Any:
    mixer.load_state_dict({**mixer.state_dict(), **given})
    return mixer.double()


def s4d(golden: dict[str, Tensor]) -> Any:
    """Of the small file (s4d.py) and of the whole block (s4.py), which stores -w, and a B that
    is part of our C.
    """
    found = weights(golden, "layer.", "kernel.")
    c, block = found["C"], "B" in found
    if block:
        c = torch.view_as_real(
            torch.view_as_complex(c.contiguous()) * torch.view_as_complex(found["B"].contiguous())
        )
    c = c if c.ndim == 4 else c[None]
    config = S4DConfig(state_dim=2 * c.shape[2], bidirectional=len(c) == 2)
    return loaded(
        S4D(config, Site(dim=c.shape[1])),
        skip=found["D"].flatten(),
        log_dt=found["inv_dt" if block else "log_dt"].flatten(),
        log_decay=found["A_real" if block else "log_A_real"],
        frequency=-found["A_imag"] if block else found["A_imag"],
        weight=c,
        **{
            "out.weight": found["output_linear.0.weight"].flatten(1),
            "out.bias": found["output_linear.0.bias"],
        },
    )


@pytest.mark.parametrize("name", golden_files("s4d", "s4 block"))
def test_s4d_gives_the_authors_outputs(name, assert_close):
    golden = load_golden(name)
    mixer, x = s4d(golden), golden["x"].double()
    assert_close(
        mixer.kernel(x.shape[1]),
        golden["kernel"].reshape(-1, *golden["kernel"].shape[-2:]),
        FLOAT32,
    )
    assert_close(mixer(x), golden["y"], FLOAT32)


@pytest.mark.parametrize("name", golden_files("s5"))
def test_s5_gives_the_outputs_of_the_port(name, assert_close):
    """Its states are no pairs of conjugates, so that y = Re C h is ours with half of C."""
    golden = load_golden(name)
    found = weights(golden, "seq.")
    poles, x = found["Lambda"], golden["x"].double()
    c = torch.view_as_real(found["C"] / 2).unflatten(1, (-1, len(poles))).movedim(1, 0)
    config = S5Config(state_dim=2 * len(poles), bidirectional=len(c) == 2)
    mixer = loaded(
        S5(config, Site(dim=x.shape[2])),
        skip=found["D"],
        log_dt=found["log_step"],
        log_decay=(-poles.real).log(),
        frequency=poles.imag,
        enter=found["B"],
        leave=c,
    )
    assert_close(mixer.mix(x) + mixer.skip * x, golden["y"], FLOAT32)


@pytest.mark.parametrize("name", golden_files("mamba"))
def test_mamba_gives_the_outputs_of_transformers(name, assert_close):
    golden = load_golden(name)
    found, x = weights(golden), golden["x"].double()
    found["conv1d.weight"] = found["conv1d.weight"][:, 0]
    config = MambaConfig(
        state_dim=found["A_log"].shape[1],
        expand=len(found["D"]) // x.shape[2],
        conv_kernel=found["conv1d.weight"].shape[1],
        dt_rank=found["dt_proj.weight"].shape[1],
    )
    mixer = loaded(
        Mamba(config, Site(dim=x.shape[2])), **{MAMBA[key]: value for key, value in found.items()}
    )
    assert_close(mixer(x), golden["y"], FLOAT32)


@pytest.mark.parametrize("name", golden_files("selective scan"))
def test_the_selective_scan_gives_the_authors_outputs(name, assert_close):
    golden = {
        key: value.double() for key, value in load_golden(name).items() if isinstance(value, Tensor)
    }
    u, dt, b, c, z = (golden[key].mT for key in ("u", "delta", "B", "C", "z"))
    plain, state = selective_scan(u, F.softplus(dt), golden["A"], b, c)
    assert_close(plain, golden["y_plain"].mT, FLOAT32)
    assert_close(state, golden["last_state"], FLOAT32)
    around = {"bias": golden["delta_bias"], "skip": golden["D"], "gate": z}
    whole, _ = selective_scan(u, dt, golden["A"], b, c, **around)
    assert_close(whole, golden["y"].mT, FLOAT32)
