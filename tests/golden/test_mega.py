"""Mega against the authors' code: moving averages and whole layers, as many files as there are.

What a file is, and every size, comes from the file: its arrays, and the options in its description.
The authors' FFT (and softmax) runs in float32 whatever the input, so whatever went through it is
compared at 1e-5; kernels, which did not, at 1e-12.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
import torch
from golden_files import golden_files

from subquad.plugin import Site
from subquad_plugins.mega import Config
from subquad_plugins.mega.ema import DampedEMA
from subquad_plugins.mega.mixer import Mega
from subquad_plugins.mega.naive import ema, mega
from subquad_plugins.mega.weights import ema_from_official, from_official
from subquad_plugins.megacur import Config as CURConfig
from subquad_plugins.megacur.mixer import MegaCUR

THROUGH_FFT = 1e-5
LAYERS = golden_files("mega layer")
EMAS = golden_files("mega average")
INPUTS = {"x", "mask", "meta"}


def weights_of(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix("w."): value for name, value in arrays.items() if name.startswith("w.")
    }


def options_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """The authors' options that differ from their defaults, from the file's description."""
    what = json.loads(arrays["meta"])["what"]
    found = re.search(r"\{.*?\}", what)
    return {"prenorm": "prenorm" in what, **(ast.literal_eval(found[0]) if found else {})}


def config_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """Our parameters for a file of a whole layer."""
    options, weights = options_of(arrays), weights_of(arrays)
    table = weights.get("rel_pos_bias.rel_pos_bias")
    chunk_size = max(options.get("chunk_size", 0), 0)
    norm = "none"
    if options["prenorm"]:
        norm = "scale" if any(name.endswith("scalar") for name in weights) else "layer"
        norm = norm if any(name.endswith(("norm.bias", "scalar")) for name in weights) else "rms"
    return {
        "attention": options.get("attention_activation", "softmax"),
        "attention_dim": weights["gamma"].shape[1],
        "value_dim": len(weights["v_proj.bias"]),
        "ema_dim": weights["move.gamma"].shape[1],
        "bidirectional": len(weights["move.gamma"]) == 2 * arrays["x"].shape[2],
        "truncation": options.get("truncation") or 0,
        "bias": "rotary" if table is None else "simple",
        "chunk_size": chunk_size,
        "max_positions": 0 if table is None or chunk_size else (len(table) + 1) // 2,
        "norm": norm,
    }


def official(arrays: dict[str, Any], cls: Any = Mega, config: Any = Config, **more: Any) -> Any:
    """A mixer with a file's weights."""
    built = config(**config_of(arrays), **more)
    mixer = cls(built, Site(dim=arrays["x"].shape[2], max_len=arrays["x"].shape[1])).double().eval()
    mixer.load_state_dict(from_official(weights_of(arrays), prenorm=options_of(arrays)["prenorm"]))
    return mixer


def layer(arrays: dict[str, Any], mixed: torch.Tensor) -> torch.Tensor:
    """The authors' layer around what a mixer returned: the residual sum, and its norm where it
    stands behind.
    """
    out, weights = arrays["x"] + mixed, weights_of(arrays)
    if options_of(arrays)["prenorm"]:
        return out
    return torch.nn.functional.layer_norm(
        out, out.shape[-1:], weights["norm.weight"], weights["norm.bias"]
    )


def keep_of(arrays: dict[str, Any], expected: str) -> torch.Tensor | None:
    return arrays["mask"].bool() if expected == "y_masked" else None


@pytest.mark.parametrize("name", [*EMAS, *LAYERS])
def test_every_expected_array_is_compared(golden, name):
    arrays = golden(name)
    expected = {key for key in arrays if not key.startswith("w.")} - INPUTS
    assert expected <= {"y", "y_masked", "kernel"}
    assert "y" in expected


@pytest.mark.parametrize("name", EMAS)
def test_moving_averages_equal_the_authors(golden, assert_close, name):
    arrays = golden(name)
    x, weights = arrays["x"], weights_of(arrays)
    both = len(weights["gamma"]) == 2 * x.shape[2]
    average = DampedEMA(x.shape[2], weights["gamma"].shape[1], bidirectional=both).double()
    average.load_state_dict(ema_from_official(weights))
    if "kernel" in arrays:
        assert_close(average.kernel(arrays["kernel"].shape[1]), arrays["kernel"], 1e-12)
    for key in {"y", "y_masked"} & set(arrays):
        assert_close(average(x, keep_of(arrays, key)), arrays[key], THROUGH_FFT)


@pytest.mark.parametrize("name", EMAS)
def test_the_recursion_equals_the_authors(golden, assert_close, name):
    arrays = golden(name)
    weights = {
        f"ema.{ours}": value for ours, value in ema_from_official(weights_of(arrays)).items()
    }
    for sample, expected in zip(arrays["x"], arrays["y"], strict=True):
        out = torch.nn.functional.silu(ema(sample, weights) + sample * weights["ema.skip"])
        assert_close(out, expected, THROUGH_FFT)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_the_authors(golden, assert_close, name):
    arrays = golden(name)
    mixer = official(arrays)
    for key in {"y", "y_masked"} & set(arrays):
        assert_close(
            layer(arrays, mixer(arrays["x"], keep=keep_of(arrays, key))), arrays[key], THROUGH_FFT
        )


@pytest.mark.parametrize("name", LAYERS)
def test_layers_in_single_precision_equal_the_authors(golden, assert_close, name):
    arrays = golden(name)
    mixer, x = official(arrays).float(), arrays["x"].float()
    for key in {"y", "y_masked"} & set(arrays):
        assert_close(
            layer(arrays, mixer(x, keep=keep_of(arrays, key)).double()), arrays[key], THROUGH_FFT
        )


@pytest.mark.parametrize("name", LAYERS)
def test_the_oracle_equals_the_authors(golden, assert_close, name):
    arrays = golden(name)
    mixer = official(arrays)
    for key in {"y", "y_masked"} & set(arrays):
        keep = keep_of(arrays, key)
        out = layer(arrays, mega(arrays["x"], mixer.state_dict(), mixer.config, keep=keep))
        real = torch.ones(out.shape[:2], dtype=torch.bool) if keep is None else keep
        assert_close(out[real], arrays[key][real], THROUGH_FFT)


@pytest.mark.parametrize("name", LAYERS)
def test_megacur_with_the_authors_weights_and_every_token_is_their_layer(
    golden, assert_close, name
):
    arrays = golden(name)
    size = config_of(arrays)["chunk_size"] or arrays["x"].shape[1]
    mixer = official(arrays, MegaCUR, CURConfig, num_indices=size, pinv="exact")
    for key in {"y", "y_masked"} & set(arrays):
        keep = keep_of(arrays, key)
        out = layer(arrays, mixer(arrays["x"], keep=keep))
        real = torch.ones(out.shape[:2], dtype=torch.bool) if keep is None else keep
        assert_close(out[real], arrays[key][real], THROUGH_FFT)
