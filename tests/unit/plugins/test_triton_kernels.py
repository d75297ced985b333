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

from subquad_plugins.numerics.jacobi import basis_steps, in_y

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
@pytest.mark.parametrize(
    ("dtype", "width", "grams", "recurrence"),
    [
        (torch.bfloat16, 64, False, False),
        (torch.bfloat16, 64, True, False),
        (torch.bfloat16, 16, True, True),
        (torch.bfloat16, 128, False, False),
        (torch.float32, 64, True, False),
        pytest.param(torch.float32, 32, True, True, marks=pytest.mark.extended),
        pytest.param(torch.float16, 64, True, False, marks=pytest.mark.extended),
    ],
)
def test_agf_asks_an_h200_for_no_more_than_it_has(dtype, width, grams, recurrence):
    """At the width of the measured layer: D = 1,024, K = 3."""
    from hopper import SHARED, compiled_kernels

    from subquad_plugins.agf.kernel import Core

    steps = in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit") if recurrence else None
    projected = torch.zeros(1, 512, 4096, dtype=dtype, requires_grad=True)
    with compiled_kernels() as found:
        for keep in (None, torch.ones(1, 512, dtype=torch.bool)):
            outputs = Core.apply(projected, torch.zeros(4), steps, keep, 1024 // width, grams)
            sum(output.float().sum() for output in outputs if output is not None).backward()
    print(*found, sep="\n")
    assert len(found) == 6
    for kernel in found:
        assert kernel.spilled == 0
        assert kernel.shared <= SHARED
        assert any(kernel.products.values())
        assert kernel.products["wgmma"] or width != 64 or dtype == torch.float32


@pytest.mark.ci
@pytest.mark.parametrize(
    ("dtype", "count", "width"),
    [
        (torch.bfloat16, 64, 64),
        (torch.bfloat16, 64, 128),
        (torch.float32, 64, 64),
        (torch.float32, 32, 128),
    ],
)
def test_flash_cur_fits_a_hopper_chip(dtype, count, width):
    """As `cur` calls it at 4,096 tokens of 64 or 128 numbers a head. What goes back through the
    inverse keeps a few numbers outside of the registers.
    """
    from hopper import SHARED, compiled_kernels

    from subquad_plugins.numerics.landmark_kernel import Inverse, Landmarks

    q, k, v = (torch.randn(1, 16, 4096, width, dtype=dtype).requires_grad_() for _ in range(3))
    hat = (torch.arange(count) * (4096 // count)).expand(1, 16, count)
    inverse = Inverse(6, True, True)
    with compiled_kernels() as asked:
        out, _ = Landmarks.apply(q, k, v, hat, hat, None, None, None, inverse, width**-0.5)
        torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert len({kernel.name for kernel in asked}) == 7
    for kernel in asked:
        print(kernel)
        assert kernel.shared <= SHARED, kernel
        assert sum(kernel.products.values()) > 0, kernel
        if dtype == torch.bfloat16 and width == 64:
            assert kernel.spilled <= {"middle_kernel": 128, "middle_back_kernel": 1024}.get(
                kernel.name, 0
            ), kernel
            assert kernel.products["wgmma"] > 0, kernel


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
def test_sizes_of_one_compile_which_triton_takes_as_constants():
    from compiled import resources

    from subquad_plugins.fourier.kernel import chirp_kernel
    from subquad_plugins.mdfwa.kernel import backward_kernel
    from subquad_plugins.sfpc.kernel import sums_kernel

    for kernel, sizes, constants in (
        (sums_kernel, 12, {"KIND": 1, "COUNTED": False, "TOKENS": 16, "CHANNELS": 32, "TAPS": 16}),
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
