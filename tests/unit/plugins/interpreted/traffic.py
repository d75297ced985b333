"""What the kernels load and store, counted: the figures of their docstrings.

A tolerance stands for what the formulas leave out: landmarks, sums, taps, coefficients.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from built_in import kernels
from interpreted import Traffic, count_traffic, multiply_bf16, on_cpu

from subquad_plugins.agf import core as agf
from subquad_plugins.agf import kernel as agf_kernel
from subquad_plugins.numerics import landmark_kernel, landmarks
from subquad_plugins.numerics.jacobi import basis_steps, in_y
from subquad_plugins.numerics.landmarks import Given
from subquad_plugins.numerics.pinv import pseudo_inverse

KERNELS = kernels()
STEPS = in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit")
BYTES = 4
"""Of a float32 number."""


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    for kernel in KERNELS.values():
        on_cpu(monkeypatch, kernel.operation)
    multiply_bf16(monkeypatch)
    return count_traffic(monkeypatch)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def assert_counted(counted: tuple[int, int], expected: tuple[float, float], unit: int) -> None:
    """Loads and stores in units of so many numbers: as expected or up to 7 % more."""
    found = [count / (BYTES * unit) for count in counted]
    for have, want in zip(found, expected, strict=True):
        assert want <= have <= 1.07 * want, (found, expected)


def flash_cur(traffic: Traffic, few: int, width: int, iterations: int) -> list[tuple[int, int]]:
    """Loads and stores of a call and of its gradients, in one part, as where samples and heads fill
    the GPU.
    """
    between = 128 * 64 // width
    q, k, v = (drawn(1, 1, between * few, width) for _ in range(3))
    hat = torch.arange(few)[None, None] * between
    traffic.taken()
    given = Given(hat, hat, partial(pseudo_inverse, iterations=iterations))
    out, _ = landmarks._ATTENTION(q, k, v, given)
    counted = [traffic.taken()]
    out.sum().backward()
    return [*counted, traffic.taken()]


@pytest.mark.parametrize(
    ("few", "width"),
    [(16, 64), (64, 64), pytest.param(128, 32, marks=pytest.mark.extended)],
)
def test_flash_cur_reads_and_writes_each_token_once_a_pass(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, few: int, width: int
) -> None:
    """However many landmarks there are, whose own numbers hardly count."""
    monkeypatch.setattr(landmark_kernel, "PROGRAMS", 1)
    forward, backward = flash_cur(traffic, few, width, iterations=0)
    assert_counted(forward, (3, 1), 128 * few * 64)
    assert_counted(backward, (4, 3), 128 * few * 64)


def test_flash_cur_meets_so_many_matrices_in_a_step_of_its_inverse(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic
) -> None:
    """Operands of 4 and 11 products, what is added to them, and what they give; three bf16 parts
    each.
    """
    monkeypatch.setattr(landmark_kernel, "PROGRAMS", 1)
    one, two = (flash_cur(traffic, 32, 64, iterations) for iterations in (1, 2))
    steps = [
        tuple(more - less for more, less in zip(*pair, strict=True))
        for pair in zip(two, one, strict=True)
    ]
    matrix = int(1.5 * 32**2)
    assert_counted(steps[0], (2 * 4 + 3, 4), matrix)
    assert_counted(steps[1], (2 * 11 + 9, 11), matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grams", [False, True])
def test_agf_reads_its_tokens_once_and_states_once_a_program(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, grams: bool, dtype: torch.dtype
) -> None:
    """Two heads, and two programs for each of them."""
    monkeypatch.setattr(agf_kernel, "PROGRAMS", 4)
    width = 32
    tokens = 512 * 2 * width * dtype.itemsize / BYTES
    states = 4 * width**2
    projected = drawn(1, 512, 4 * 2 * width).to(dtype).detach().requires_grad_()
    traffic.taken()
    outputs = agf.core(agf.Given(projected, drawn(4), STEPS, None, 2, grams=grams))
    written = tokens + (1 + 2 * grams) * states
    assert_counted(traffic.taken(), ((4 + grams) * tokens + states, written), 1)
    sum(out.sum() for out in outputs if out is not None).backward()
    loaded = 5 * tokens + (3 + 3 * grams) * states
    assert_counted(traffic.taken(), (loaded, 4 * tokens + states), 1)


@pytest.mark.parametrize(
    ("operation", "label"),
    [(name, label) for name, kernel in KERNELS.items() for label in kernel.moved],
)
def test_each_number_is_loaded_and_stored_as_the_docstring_says(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, operation: str, label: str
) -> None:
    kernel = KERNELS[operation]
    moved = kernel.moved[label]
    for name, value in moved.patched.items():
        monkeypatch.setattr(name, value)
    given = {
        name: value.clone().requires_grad_(value.is_floating_point())
        if torch.is_tensor(value)
        else value
        for name, value in moved.given.items()
    }
    first = next(iter(given.values()))
    traffic.taken()
    out = kernel.operation(*kernel.call(given))
    assert_counted(traffic.taken(), moved.forward, first.numel())
    if moved.backward:
        out.sum().backward()
        assert_counted(traffic.taken(), moved.backward, first.numel())
