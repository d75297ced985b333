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
OTHER_FORMATS = [
    pytest.param(dtype, marks=pytest.mark.extended) for dtype in (torch.float16, torch.float32)
]
"""They compile as bf16 does, but for the type of what is read and written."""


@pytest.mark.ci
@pytest.mark.parametrize(
    "tier", ["not extended", pytest.param("extended", marks=pytest.mark.extended)]
)
def test_kernels_equal_their_reference_in_the_interpreter(tier):
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", tier]
    command = [sys.executable, "-m", "pytest", *options, *INTERPRETED]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=HERE.parents[2]
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    ("dtype", "width", "grams", "recurrence"),
    [
        (torch.bfloat16, 64, True, False),
        (torch.bfloat16, 128, False, False),
        (torch.float32, 64, True, False),
        pytest.param(torch.bfloat16, 64, False, False, marks=pytest.mark.extended),
        pytest.param(torch.bfloat16, 16, True, True, marks=pytest.mark.extended),
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
        (torch.bfloat16, 256, 64),
        (torch.bfloat16, 64, 128),
        (torch.float32, 128, 32),
        pytest.param(torch.bfloat16, 32, 64, marks=pytest.mark.extended),
        pytest.param(torch.bfloat16, 64, 64, marks=pytest.mark.extended),
        pytest.param(torch.bfloat16, 128, 64, marks=pytest.mark.extended),
        pytest.param(torch.float32, 64, 64, marks=pytest.mark.extended),
        pytest.param(torch.float32, 32, 128, marks=pytest.mark.extended),
    ],
)
def test_flash_cur_fits_a_hopper_chip(dtype, count, width):
    """As `cur` calls it at 4,096 tokens. bf16 spills nothing; float32 a little, most of it on the
    way back through the inverse.
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
        assert kernel.spilled <= (0 if dtype == torch.bfloat16 else 400), kernel


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
@pytest.mark.parametrize("dtype", [*OTHER_FORMATS, torch.bfloat16], ids=str)
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
@pytest.mark.parametrize(
    ("dtype", "states"),
    [
        (torch.bfloat16, 16),
        (torch.float32, 32),
        *(pytest.param(torch.float32, states, marks=pytest.mark.extended) for states in (1, 8, 16)),
        *(
            pytest.param(torch.bfloat16, states, marks=pytest.mark.extended)
            for states in (1, 8, 32)
        ),
    ],
)
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
