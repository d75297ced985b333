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
from built_in import kernels

from subquad_plugins.numerics.jacobi import basis_steps, in_y

triton = pytest.importorskip("triton")

HERE = Path(__file__).parent
INTERPRETED = sorted((HERE / "interpreted").glob("*.py"))
OTHER_FORMATS = [
    pytest.param(dtype, marks=pytest.mark.extended) for dtype in (torch.float16, torch.float32)
]
"""They compile as bf16 does, but for the type of what is read and written."""


@pytest.mark.ci
@pytest.mark.parametrize(
    "tier", ["not extended", pytest.param("extended", marks=pytest.mark.extended)]
)
@pytest.mark.parametrize("path", INTERPRETED, ids=lambda path: path.stem)
def test_kernels_equal_their_reference_in_the_interpreter(path, tier):
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", tier]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=HERE.parents[2]
    )
    none = tier == "extended" and done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert none or done.returncode == 0, done.stdout + done.stderr


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


LAYER = (2, 4096, 1024)
"""Samples, of a layer with 4,096 tokens; nothing is computed."""

STARTED = {name: kernel for name, kernel in kernels().items() if kernel.start}
CALLS = {
    label: (kernel, *call) for kernel in STARTED.values() for label, call in kernel.compiled.items()
}
"""Kernels, settings, and how many kinds of them a call starts at most, gradients included."""


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
    kernel, settings, most = CALLS[name]
    found = compiled(kernel.start, dtype, LAYER, **settings)
    assert 0 < len(found) <= most


@pytest.mark.ci
def test_a_chirp_turns_its_tiles_between_reading_and_writing():
    for dtype in (torch.float32, torch.complex64):
        for real in (False, True):
            forward, *_ = compiled(STARTED["fourier.chirp"].start, dtype, (2, 64, 64), real=real)
            assert bool(forward.shared) != real


@pytest.mark.ci
@pytest.mark.parametrize("name", STARTED)
def test_sizes_of_one_compile(name):
    """Which Triton takes as constants."""
    kernel = STARTED[name]
    assert compiled(kernel.start, torch.float32, kernel.smallest)


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
