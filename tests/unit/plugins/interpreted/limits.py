"""What a kernel cannot handle: another form computes it and that is told once, or torch refuses
it with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from built_in import kernels
from interpreted import assert_near, fill_with_nan, multiply_bf16, on_cpu
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from subquad.nn.kernels import OPERATIONS, using
from subquad_plugins.about import Kernel, drawn
from subquad_plugins.numerics.landmarks import MOST_LANDMARKS

KERNELS = kernels()


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr("subquad.nn.kernels._warned", set())
    multiply_bf16(monkeypatch)
    for kernel in KERNELS.values():
        on_cpu(monkeypatch, kernel.operation)


def called(operation, changes, forced=""):
    """The first output, and what ran."""
    kernel = KERNELS[operation]
    with using(forced) as used:
        out = kernel.operation(*kernel.call({**kernel.given, **changes}))
    return out[0] if isinstance(out, tuple) else out, used[operation]


def in_float64(kernel: Kernel) -> dict[str, Tensor]:
    """Its real tensors, but for those of one axis."""
    return {
        name: tensor.double()
        for name, tensor in kernel.given.items()
        if torch.is_tensor(tensor) and tensor.ndim > 1 and tensor.is_floating_point()
    }


def taken(kernel: Kernel) -> list[Mapping[str, Any]]:
    """What it is given in the place of its arguments, and takes."""
    return [{}, *([kernel.masked] if kernel.masked else []), *kernel.taken]


TAKEN = [(name, change) for name, kernel in KERNELS.items() for change in taken(kernel)]


@pytest.mark.parametrize(("operation", "changes"), TAKEN)
def test_what_each_kernel_takes(operation, changes, caplog):
    (got, used), (expected, _) = called(operation, changes), called(operation, changes, "reference")
    assert used == "triton"
    assert_close(got, expected, rtol=5e-6, atol=5e-6)
    assert caplog.messages == []


def results(
    kernel: Kernel, given: Mapping[str, Any], dtype: torch.dtype, forced: str
) -> Sequence[Tensor]:
    """Outputs and all gradients, for random weights; complex numbers as pairs of real ones."""
    given = {
        name: value.detach().to(value.dtype if dtype == torch.float32 else wide(value))
        if torch.is_tensor(value)
        else value
        for name, value in given.items()
    }
    inputs = [
        value.requires_grad_()
        for value in given.values()
        if torch.is_tensor(value) and value.is_floating_point()
    ]
    with using({kernel.operation.name: forced}):
        found = kernel.operation(*kernel.call(given))
    outputs = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
    weights = [drawn(*output.shape).to(output) for output in outputs]
    gradients = torch.autograd.grad(outputs, inputs, weights)
    return [torch.view_as_real(x) if x.is_complex() else x for x in (*outputs, *gradients)]


def wide(tensor: Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


@pytest.mark.parametrize(("operation", "changes"), TAKEN)
def test_values_and_all_gradients(operation, changes, monkeypatch):
    kernel = KERNELS[operation]
    given = {**kernel.given, **changes}
    expected = results(kernel, given, torch.float64, "reference")
    fill_with_nan(monkeypatch)
    got = results(kernel, given, torch.float32, "triton")
    assert_near(got, expected, 1e-5)


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        (name, change)
        for name, kernel in KERNELS.items()
        for change in (in_float64(kernel), *kernel.beyond)
    ],
)
def test_another_form_computes_it_and_is_told_once(operation, changes, caplog):
    for _ in range(2):
        got, used = called(operation, changes)
    assert used == KERNELS[operation].instead
    expected, _ = called(operation, changes, "reference")
    assert_close(got, expected, rtol=5e-6, atol=5e-6)
    (message,) = caplog.messages
    assert message.startswith(f"{operation}: triton does not take these arguments (torch.float")
    assert message.endswith(f" on cpu), {used} runs")


@pytest.mark.parametrize(
    ("landmarks_given", "width", "taken"),
    [
        (128, 64, ["triton", "triton-tiles"]),
        (129, 64, ["triton-tiles"]),
        (MOST_LANDMARKS, 64, ["triton-tiles"]),
        (MOST_LANDMARKS, 65, []),
        (MOST_LANDMARKS + 1, 64, []),
    ],
)
def test_most_landmarks_are_of_narrow_heads_in_half_precision(landmarks_given, width, taken):
    kernel = KERNELS["landmarks.attention"]
    changes = dict.fromkeys("qkv", drawn(1, 1, 5, width, dtype=torch.bfloat16))
    hat = drawn(1, 1, landmarks_given, width)
    given = kernel.call({**kernel.given, **changes, "q_hat": hat, "k_hat": hat})
    implementations = OPERATIONS["landmarks.attention"].implementations
    takers = [each.name for each in implementations if each.takes(*given)]
    assert [name for name in takers if name.startswith("triton")] == taken
    assert takers[0] == ("triton" if "triton" in taken else "reference")


@pytest.mark.parametrize(
    ("operation", "changes", "reason"),
    [(name, *refused) for name, kernel in KERNELS.items() for refused in kernel.refused],
)
def test_what_nothing_can_compute_is_refused_with_a_reason(operation, changes, reason):
    with pytest.raises((RuntimeError, ValueError), match=reason):
        called(operation, changes)


@pytest.mark.parametrize("operation", KERNELS)
def test_tensors_of_two_devices_and_values_without_keys_go_to_no_kernel(operation):
    """On the CPU torch itself may read them, beyond their ends."""
    kernel = KERNELS[operation]
    triton = next(
        implementation
        for implementation in OPERATIONS[operation].implementations
        if implementation.name == "triton"
    )
    given = {**kernel.given, **kernel.masked}
    changes = [
        {name: tensor.to("meta")} for name, tensor in given.items() if torch.is_tensor(tensor)
    ]
    changes += [{"v": drawn(2, 2, 6, 4)}] if "v" in given else []
    assert triton.takes(*kernel.call(given))
    assert [change for change in changes if triton.takes(*kernel.call({**given, **change}))] == []
