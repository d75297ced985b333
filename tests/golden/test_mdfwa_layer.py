"""Whole MDFWA layers: golden outputs against the oracle, and against the mixer where it has such
weights.

A file's arrays have the names of the oracle's arguments (`X`, `F_F`, `alpha`, `period`, ..), and
`LN_Y`, `out` (X + LN(Y)) or both are what they give. Learned frequencies and weights of scales that
do not sum to 1 are the oracle's alone. Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from golden_files import golden_files, load_golden
from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.mdfwa import Config
from subquad_plugins.mdfwa.mixer import MDFWA
from subquad_plugins.mdfwa.naive import mdfwa

FILES = golden_files("mdfwa layer")
ARGUMENTS = inspect.signature(mdfwa).parameters
WEIGHTS = {"F_F": "from_fourier", "F_W": "from_wavelet", "W_G": "gate"}


def layer_of(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The oracle's arguments, and what is expected."""
    arrays = load_golden(name)
    expected = {key: arrays.pop(key) for key in ("LN_Y", "out") if key in arrays}
    assert expected, f"{name}: neither LN_Y nor out"
    assert not (odd := set(arrays) - set(ARGUMENTS)), (
        f"{name}: {odd} are no arguments: {', '.join(ARGUMENTS)}"
    )
    scalars = {key: arrays[key].item() for key in ("period", "include_approx") if key in arrays}
    return arrays | scalars | (
        {"keep": arrays["keep"].bool()} if "keep" in arrays else {}
    ), expected


def mixer_of(given: dict[str, Any]) -> MDFWA | None:
    """The mixer with these weights; None where it cannot have them."""
    alpha, period = given.get("alpha"), given.get("period")
    if (
        "omega" in given
        or "delta" in given
        or (alpha is not None and abs(float(alpha.sum()) - 1) > 1e-9)
    ):
        return None
    params: dict[str, Any] = {
        "branches": "wavelet" if "F_F" not in given else "both" if "F_W" in given else "fourier"
    }
    names = ("form", "norm", "mode", "wavelet", "include_approx")
    params |= {name: given[name] for name in names if name in given}
    params |= {"norm_output": "gain" in given, "gate": "sigmoid" if "W_G" in given else "none"}
    if alpha is not None:
        params["level"] = len(alpha) - params.get("include_approx", False)
    mixer = MDFWA(
        Config(**params, period=period or 0),
        Site(dim=len(given["b"]), causal=period is not None, max_len=period or 0),
    )
    state = {"bias": given["b"]} | {
        f"{ours}.weight": given[name].T for name, ours in WEIGHTS.items() if name in given
    }
    state |= {"project.weight": given["P"]} if "P" in given else {}
    state |= {"bands.scale_logits": alpha.log()} if alpha is not None else {}
    state |= {"norm.weight": given["gain"], "norm.bias": given["bias"]} if "gain" in given else {}
    state |= {"gate.bias": given["b_G"]} if "b_G" in given else {}
    mixer.double().eval().load_state_dict({**mixer.state_dict(), **state})
    return mixer


def compare(name: str, assert_close: Any) -> bool:
    """Whether the mixer was compared, too."""
    given, expected = layer_of(name)
    x, keep, mixer = given["X"].double(), given.get("keep"), mixer_of(given)
    found = [mdfwa(**given)] + ([] if mixer is None else [mixer(x, keep=keep)])
    real = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
    for out in found:
        for key, wanted in expected.items():
            assert_close((out + x if key == "out" else out)[real], wanted[real], 1e-12)
    return mixer is not None


@pytest.mark.parametrize("name", FILES)
def test_layer(name, assert_close):
    compare(name, assert_close)
