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

FORMATS = ["fp32", "bf16", pytest.param("fp16", marks=HALF)]
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
@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_sfpc_compiles_for_sm_90(number, kind):
    from compiled import assert_fits, resources

    from subquad_plugins.sfpc import kernel

    tensors = {
        "x": f"*{number}",
        "y": f"*{number}",
        "taps": "*fp32",
        "sums": "*fp32",
        "counts": "*i32",
    }
    shared = {"KIND": kind, "COUNTED": True}
    assert_fits(
        **resources(
            kernel.correlate_kernel,
            tensors,
            {**shared, "TOKENS": kernel.TOKENS, "CHANNELS": kernel.CHANNELS},
        )
    )
    tile = {"TOKENS": kernel.SUM_TOKENS, "CHANNELS": kernel.SUM_CHANNELS, "TAPS": kernel.SUM_TAPS}
    assert_fits(**resources(kernel.sums_kernel, tensors, {**shared, **tile}))


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


@pytest.mark.ci
@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("gated", [False, True])
def test_mdfwa_compiles_for_sm_90(number, gated):
    from compiled import assert_fits, resources

    from subquad_plugins.mdfwa import kernel

    of_tokens = ("spectral", "banded", "gate", "out", "grad", "to_spectral", "to_banded", "to_gate")
    tensors = dict.fromkeys(of_tokens, f"*{number}") | {"bias": "*fp32", "sums": "*fp32"}
    tile = {"GATED": gated, "TOKENS": kernel.TOKENS, "CHANNELS": kernel.CHANNELS}
    for kernel_function in (kernel.forward_kernel, kernel.backward_kernel):
        assert_fits(**resources(kernel_function, tensors, tile))


@pytest.mark.ci
@pytest.mark.parametrize("from_real", [False, True])
@pytest.mark.parametrize("to_real", [False, True])
def test_chirp_compiles_for_sm_90(from_real, to_real):
    from compiled import assert_fits, resources

    from subquad_plugins.fourier import kernel

    tensors = {
        "z": "*fp32" if from_real else "*i64",
        "wave": "*i64",
        "out": "*fp32" if to_real else "*i64",
    }
    tile = {
        "FROM_REAL": from_real,
        "TO_REAL": to_real,
        "TOKENS": kernel.TOKENS,
        "CHANNELS": kernel.CHANNELS,
    }
    for turned in ({"z_channel": 1, "out_token": 1}, {"z_token": 1, "out_channel": 1}):
        used = resources(kernel.chirp_kernel, tensors, {**tile, **turned})
        assert_fits(**used)
        # Read and written side by side: a tile is turned in between.
        assert used["shared"] > 0
    assert (
        resources(kernel.chirp_kernel, tensors, {**tile, "z_channel": 1, "out_channel": 1})[
            "shared"
        ]
        == 0
    )


@pytest.mark.ci
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("states", [1, 8, 16, 32])
def test_the_selective_scan_compiles_for_sm_90(dtype, states):
    from hopper import SHARED, compiled_kernels

    from subquad_plugins.numerics.selective_scan_kernel import Scan

    tokens = [torch.zeros(2, 70, 256, dtype=dtype, requires_grad=True) for _ in range(3)]
    rows = [torch.zeros(2, 70, states) for _ in range(2)]
    shared = [torch.zeros(256, states), *torch.zeros(2, 256), torch.zeros(2, 256, states)]
    with compiled_kernels() as asked:
        y, last = Scan.apply(*tokens, *rows, *shared)
        torch.autograd.grad((y, last), tokens, (y, last))
    assert len(asked) == 2
    for kernel in asked:
        print(kernel)
        assert kernel.spilled == 0
        assert kernel.shared <= SHARED


@pytest.mark.ci
def test_sizes_of_one_compile_which_triton_takes_as_constants():
    from compiled import resources

    from subquad_plugins.fourier.kernel import chirp_kernel
    from subquad_plugins.mdfwa.kernel import backward_kernel
    from subquad_plugins.numerics.landmark_kernel import key_kernel
    from subquad_plugins.sfpc.kernel import sums_kernel

    widths = dict.fromkeys(("WIDTH", "V_WIDTH"), 1) | dict.fromkeys(("FILLED", "V_FILLED"), 16)
    for kernel, sizes, constants in (
        (sums_kernel, 12, {"KIND": 1, "COUNTED": False, "TOKENS": 16, "CHANNELS": 32, "TAPS": 16}),
        (key_kernel, 19, {"MASKED": True, "TILE": 32, "PRECISION": "tf32", **widths}),
        (chirp_kernel, 12, {"FROM_REAL": True, "TO_REAL": True, "TOKENS": 32, "CHANNELS": 32}),
        (backward_kernel, 2, {"GATED": False, "TOKENS": 32, "CHANNELS": 64}),
    ):
        words = ("heads", "length", "size", "dim", "tokens", "tiles", "before", "num_taps")
        ends = (*words, "_sample", "_head", "_row", "_key", "_token", "_channel")
        ones = [n for n in kernel.arg_names if n.endswith(ends) and n not in constants]
        assert len(ones) == sizes
        others = dict.fromkeys(kernel.arg_names, "*fp32") | {
            "mask": "*u8",
            "scale": "fp32",
            "wave": "*i64",
        }
        assert resources(kernel, others, constants | dict.fromkeys(ones, 1))["registers"] > 0
