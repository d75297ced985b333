"""Fourier mixing, causal and not, against dense definitions and FNet's public code; the keys of a
file decide.

Every array of a file is either an input or compared: a key that no comparison knows fails.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from golden_files import arrays_of, golden_files, load_golden

from subquad.plugin import Site
from subquad_plugins.causal_fourier import Config as CausalConfig
from subquad_plugins.causal_fourier.chirp import causal_fourier, chirp_sum, learned_causal_fourier
from subquad_plugins.causal_fourier.mixer import CausalFourier
from subquad_plugins.fourier import Config
from subquad_plugins.fourier.mixer import Fourier
from subquad_plugins.fourier.transform import fourier_mix, learned_fourier

ENOUGH_TERMS = 22
"""Interpolation terms whose error is below rounding in float64."""

INPUTS = {"x", "omega", "delta", "G", "meta"}
PATTERN = r"(causal_N|causal_c)(\d+)(_re|_im)?"


def cases(kind: str) -> list[tuple[str, str]]:
    found = []
    for name in golden_files(kind):
        found += [
            (name, key) for key in arrays_of(name) if key not in INPUTS and not key.startswith("x_")
        ]
    return found


def expected_close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12) -> None:
    assert got.shape == expected.shape
    scale = max(1.0, float(expected.abs().max()))
    assert float((got.detach().double() - expected).abs().max()) <= tolerance * scale


def computed(key: str, arrays: dict[str, Any], x: torch.Tensor) -> list[torch.Tensor]:
    """What we make of one key, by every path there is."""
    length, keep = x.shape[1], torch.ones(x.shape[:2], dtype=torch.bool)
    if key in ("re_seq", "re_2d", "hartley"):
        return [fourier_mix(x, key, "paper", mask) for mask in (None, keep)]
    if key == "learned":
        return [
            learned_fourier(x, arrays["omega"], ENOUGH_TERMS, keep=mask) for mask in (None, keep)
        ]
    if key == "learned_causal":
        delta = arrays["delta"]
        forms = [
            learned_causal_fourier(x, delta, length, ENOUGH_TERMS, evaluation=how)
            for how in ("dense", "chirp")
        ]
        return [form * length / 2 for form in forms]
    found = re.fullmatch(PATTERN, key)
    assert found, f"no comparison for the key {key}"
    period = int(found[2])
    if found[1] == "causal_N":
        return [causal_fourier(x, period, evaluation=how) for how in ("dense", "chirp")]
    total = chirp_sum(x, period)
    return [total.real if found[3] == "_re" else total.imag]


@pytest.mark.parametrize(("name", "key"), cases("fourier transforms"))
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=str
)
def test_transforms_equal_their_dense_definitions(name, key, dtype, tolerance):
    arrays = load_golden(name)
    x = arrays["x"].to(dtype)
    if key == "grad_omega":
        omega = arrays["omega"].clone().requires_grad_()
        y = learned_fourier(x, omega, ENOUGH_TERMS)
        (gradient,) = torch.autograd.grad((y * arrays["G"].to(dtype)).sum(), omega)
        expected_close(gradient, arrays[key], tolerance)
        return
    results = computed(key, arrays, x)
    assert results
    for result in results:
        assert result.dtype == dtype
        expected_close(result, arrays[key], tolerance)


@pytest.mark.parametrize(("name", "key"), cases("fnet"))
def test_mixer_equals_fnet(name, key):
    arrays = load_golden(name)
    form = "re_seq" if key == "y_seq_only" else "re_2d"
    x = arrays.get("x" + key.removeprefix("y"), arrays["x"])
    mixer = Fourier(Config(form=form, norm="paper"), Site(dim=x.shape[2])).double()
    assert not list(mixer.parameters())
    expected_close(mixer(x), arrays[key])
    expected_close(mixer(x, keep=torch.ones(x.shape[:2], dtype=torch.bool)), arrays[key])


@pytest.mark.parametrize(
    ("name", "key"), [case for case in cases("fourier transforms") if "causal_N" in case[1]]
)
@pytest.mark.parametrize("evaluation", ["auto", "dense", "chirp"])
def test_causal_mixer_and_its_decoding_equal_the_dense_definition(name, key, evaluation):
    arrays = load_golden(name)
    x, period = arrays["x"], int(key.removeprefix("causal_N"))
    config = CausalConfig(period=period, norm="paper", evaluation=evaluation)
    mixer = CausalFourier(config, Site(dim=x.shape[2], causal=True)).double()
    expected_close(mixer(x), arrays[key])
    out, cache = mixer.prefill(x[:, :3])
    rows = list(out.unbind(1))
    for token in x[:, 3:].unbind(1):
        row, cache = mixer.step(token, cache)
        rows.append(row)
    expected_close(torch.stack(rows, 1), arrays[key])
