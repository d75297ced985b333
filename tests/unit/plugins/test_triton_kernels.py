"""Triton kernels without a GPU: run by its interpreter, in a process of their own, and compiled for
sm_90.

The interpreter has to be chosen before triton is imported, so `interpreted/` holds tests that
pytest does not collect by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

HERE = Path(__file__).parent
INTERPRETED = sorted(map(str, (HERE / "interpreted").glob("*.py")))
HALF = pytest.mark.extended
"""fp16 compiles as bf16 does, but for the type of what is read and written."""

HALF_FORMAT = pytest.param(torch.float16, marks=HALF)
PRECISIONS = [("fp32", "tf32x3"), ("bf16", "tf32"), pytest.param("fp16", "tf32", marks=HALF)]


@pytest.mark.ci
def test_kernels_equal_their_reference_in_the_interpreter():
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", ""]
    command = [sys.executable, "-m", "pytest", *options, *INTERPRETED]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=HERE.parents[2]
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(("number", "precision"), PRECISIONS)
@pytest.mark.parametrize("width", [16, 64, 128])
def test_agf_compiles_for_sm_90(number, precision, width):
    from compiled import assert_fits, resources

    from subquad_plugins.agf import kernel
    from subquad_plugins.agf.core import WIDEST_WITH_GRAMS

    inputs = ("left", "right", "value", "logits")
    of_tokens = (*inputs, "out", "grad", *(f"to_{name}" for name in inputs))
    states = ("table", "top", "total", "inner")
    of_sums = (*states, "coefficients", "to_coefficients", "state", "to_state")
    of_grams = ("left_gram", "right_gram", "to_gram")
    tensors = (
        dict.fromkeys(of_tokens, f"*{number}")
        | dict.fromkeys(of_sums + of_grams, "*fp32")
        | {"keep": "*u8"}
    )
    tile = {"WIDTH": width, "FILLED": width, "TOKENS": kernel.TOKENS, "PRECISION": precision}
    grams, masked = {"GRAMS": width <= WIDEST_WITH_GRAMS}, {"MASKED": True}
    kernels = {"state": masked | grams, "out": {}, "left": grams, "right": masked | grams}
    for name, own in kernels.items():
        kernel_function = getattr(kernel, f"{name}_kernel")
        used = resources(kernel_function, tensors, tile | own, 8 if width >= 64 else 4)
        assert_fits(**used, most_spilled=64 if width < 128 else 2048)


@pytest.mark.ci
@pytest.mark.parametrize(("number", "precision"), PRECISIONS)
@pytest.mark.parametrize("width", [16, 64, 128])
def test_landmark_attention_compiles_for_sm_90(number, precision, width):
    from compiled import assert_fits, resources

    from subquad_plugins.numerics import landmark_kernel as kernel

    of_tokens = ("q", "k", "v", "out", "grad", "to_q", "to_k", "to_v")
    tensors = dict.fromkeys(of_tokens, f"*{number}") | dict.fromkeys(
        ("logs", "total", "inner"), "*fp32"
    )
    tensors |= {"mask": "*u8", "scale": "fp32"}
    widths = dict.fromkeys(("WIDTH", "V_WIDTH", "FILLED", "V_FILLED"), width)
    tile = {"MASKED": True, "TILE": kernel.TILE, "PRECISION": precision} | widths
    for kernel_function in (kernel.forward_kernel, kernel.query_kernel, kernel.key_kernel):
        used = resources(kernel_function, tensors, tile, 8 if width >= 32 else 4)
        assert_fits(**used, most_spilled=64 if width < 128 else 2048)


def tokens(dtype, *shape):
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def sfpc(dtype, shape, matrix="neumann", order=8):
    from subquad_plugins.sfpc.fir import _Fir

    keep = torch.ones(shape[:2], dtype=torch.bool)
    a = tokens(torch.float32, shape[2], order + 1)
    return _Fir.apply(tokens(dtype, *shape), a, matrix, keep, "triton", False)


def wavelet(dtype, shape, name="db4", mode="periodization", bands=4, lengths=None):
    from subquad_plugins.wavelet.filters import filter_bank
    from subquad_plugins.wavelet.kernel import Mix

    weights = tokens(torch.float32, bands)
    return Mix.apply(tokens(dtype, *shape), weights, filter_bank(name), mode, bands < 3, lengths)


def fusion(dtype, shape, gated=False):
    from subquad_plugins.mdfwa.kernel import Fusion

    gate = tokens(dtype, *shape) if gated else None
    branches = tokens(dtype, *shape), tokens(dtype, *shape)
    return Fusion.apply(*branches, gate, tokens(torch.float32, shape[2]))


def chirp(dtype, shape, real=False):
    from subquad_plugins.fourier.kernel import Chirped

    wave = torch.zeros(shape[1], dtype=torch.complex64)
    return Chirped.apply(tokens(dtype, *shape), wave, shape[1] if real else 2 * shape[1], real)


def pairs(dtype, shape, form="re_seq"):
    from subquad_plugins.fourier.kernel import mixed

    return mixed(tokens(dtype, *shape).detach(), form, "ortho", None)


LAYER = (2, 4096, 1024)
"""Samples, of a layer with 4,096 tokens; nothing is computed."""

CALLS = {
    "sfpc": (sfpc, {}, 4),
    "sfpc of 257 taps": (sfpc, {"matrix": "shift", "order": 256}, 4),
    "sfpc, other sign": (sfpc, {"matrix": "dirichlet"}, 4),
    "wavelet": (wavelet, {}, 12),
    "wavelet, own lengths": (
        wavelet,
        {"name": "bior2.2", "mode": "smooth", "bands": 2, "lengths": torch.ones(2).long()},
        4,
    ),
    "wavelet, long": (wavelet, {"name": "sym16", "bands": 2}, 4),
    "fusion": (fusion, {}, 2),
    "fusion, gated": (fusion, {"gated": True}, 2),
    "pairs": (pairs, {}, 2),
    "pairs, hartley": (pairs, {"form": "hartley"}, 2),
}
"""Calls that start kernels, and how many kinds of them at most, gradients included."""


def compiled(call, dtype, shape, **settings):
    """What each kernel asks of an H200, none of which spills a register."""
    from hopper import SHARED, compiled_kernels

    with compiled_kernels() as found:
        out = call(dtype, shape, **settings).real
        if out.requires_grad:
            out.sum().backward()
    for kernel in found:
        print(kernel)
        assert not kernel.spilled
        assert kernel.shared <= SHARED
    return found


@pytest.mark.ci
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, HALF_FORMAT], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_compiles_for_an_h200(name, dtype):
    call, settings, most = CALLS[name]
    found = compiled(call, dtype, LAYER, **settings)
    assert 0 < len(found) <= most


@pytest.mark.ci
def test_a_chirp_turns_its_tiles_between_reading_and_writing():
    for dtype in (torch.float32, torch.complex64):
        for real in (False, True):
            forward, *_ = compiled(chirp, dtype, (2, 64, 64), real=real)
            assert bool(forward.shared) != real


@pytest.mark.ci
@pytest.mark.parametrize("call", [sfpc, wavelet, fusion, chirp, pairs])
def test_sizes_of_one_compile(call):
    """Which Triton takes as constants."""
    assert compiled(call, torch.float32, (1, 1, 2 if call is pairs else 1))


@pytest.mark.ci
def test_sizes_of_one_compile_which_triton_takes_as_constants():
    from compiled import resources

    from subquad_plugins.numerics.landmark_kernel import key_kernel

    widths = dict.fromkeys(("WIDTH", "V_WIDTH"), 1) | dict.fromkeys(("FILLED", "V_FILLED"), 16)
    constants = {"MASKED": True, "TILE": 32, "PRECISION": "tf32", **widths}
    ends = ("heads", "length", "tiles", "_sample", "_head", "_row", "_key")
    ones = [n for n in key_kernel.arg_names if n.endswith(ends) and n not in constants]
    others = dict.fromkeys(key_kernel.arg_names, "*fp32") | {"mask": "*u8", "scale": "fp32"}
    assert resources(key_kernel, others, constants | dict.fromkeys(ones, 1))["registers"] > 0
