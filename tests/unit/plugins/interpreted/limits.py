"""What a kernel cannot handle: another form computes it and that is told once, or torch refuses
it with a reason.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interpreted import multiply_bf16, on_cpu
from torch.testing import assert_close

from subquad.nn import kernels
from subquad.nn.kernels import OPERATIONS, using
from subquad_plugins.agf import core as agf
from subquad_plugins.fourier import transform as _fourier  # noqa: F401  (its operations)
from subquad_plugins.mdfwa import fusion as _fusion  # noqa: F401
from subquad_plugins.numerics import landmarks
from subquad_plugins.numerics.jacobi import basis_steps, in_y
from subquad_plugins.numerics.landmarks import MOST_LANDMARKS
from subquad_plugins.numerics.pinv import exact_inverse, pseudo_inverse
from subquad_plugins.sfpc import MOST_TAPS
from subquad_plugins.sfpc import fir as _fir  # noqa: F401
from subquad_plugins.wavelet import dwt as _dwt  # noqa: F401
from subquad_plugins.wavelet.filters import filter_bank


def of(*shape, dtype=torch.float32, device="cpu"):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def mask(*shape, dtype=torch.bool, device="cpu"):
    """The first token is padding. Rows start at odd addresses, with gaps between them."""
    whole = torch.ones(*shape[:-1], shape[-1] + 3, dtype=dtype, device=device)
    whole[..., 3] = 0
    return whole[..., 3:]


GIVEN = {
    "agf.core": {
        "projected": of(2, 5, 16),
        "coefficients": of(4),
        "steps": in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit"),
        "keep": None,
        "num_heads": 2,
    },
    "landmarks.attention": {
        "q": of(2, 2, 3, 4),
        "k": of(2, 2, 5, 4),
        "v": of(2, 2, 5, 4),
        "q_hat": torch.tensor([2, 0]).expand(2, 2, 2),
        "k_hat": torch.tensor([1, 4]).expand(2, 2, 2),
        "invert": partial(pseudo_inverse, iterations=2),
        "scale": 0.7,
    },
    "sfpc.fir": {"x": of(2, 5, 4), "a": of(4, 3), "matrix": "neumann", "keep": None, "fft": False},
    "mdfwa.fusion": {
        "spectral": of(2, 5, 4),
        "banded": of(2, 5, 4),
        "gate": of(2, 5, 4),
        "bias": of(4),
    },
    "fourier.chirp": {
        "z": of(2, 5, 3),
        "wave": of(5, dtype=torch.complex64),
        "size": 9,
        "real": False,
    },
    "fourier.mix": {"x": of(2, 5, 4), "form": "hartley", "norm": "paper", "keep": None},
    "wavelet.mix": {
        "x": of(2, 5, 4),
        "weights": of(2),
        "bank": filter_bank("db2"),
        "mode": "smooth",
        "include_approx": True,
        "lengths": None,
    },
}
"""Arguments that each kernel takes."""

MASKED = {
    "agf.core": {"keep": mask(2, 5)},
    "landmarks.attention": {
        "key_keep": mask(2, 5),
        "q_hat_keep": mask(2, 2, 2),
        "k_hat_keep": mask(2, 1, 2),
    },
    "sfpc.fir": {"keep": mask(2, 5)},
    "wavelet.mix": {"lengths": torch.tensor([5, 5])},
}


NEXT = {"sfpc.fir": "closed-form", "fourier.mix": "symmetric"}
"""What runs instead of the kernel."""


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(kernels, "_warned", set())
    multiply_bf16(monkeypatch)
    for name in GIVEN:
        on_cpu(monkeypatch, OPERATIONS[name])


def called(operation, changes, forced=""):
    """The first output, and what ran."""
    with using(forced) as used:
        out = OPERATIONS[operation](*arguments(operation, changes))
    return out[0] if isinstance(out, tuple) else out, used[operation]


def arguments(operation, changes):
    given = GIVEN[operation] | changes
    if operation == "agf.core":
        return given["projected"], agf.Given(**given)
    if operation == "landmarks.attention":
        q, k, v = (given.pop(name) for name in "qkv")
        return q, k, v, landmarks.Given(**given)
    return given.values()


def all_of(operation, dtype=None, shape=None):
    """Its real tensors, in another format or of another shape."""
    found = {
        name: tensor
        for name, tensor in GIVEN[operation].items()
        if torch.is_tensor(tensor) and tensor.ndim > 1 and tensor.is_floating_point()
    }
    return {name: tensor.to(dtype) if dtype else of(*shape) for name, tensor in found.items()}


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        *((name, {}) for name in GIVEN),
        *MASKED.items(),
        ("landmarks.attention", {"q_hat": of(2, 2, 3, 4), "k_hat": of(2, 2, 6, 4)}),
    ],
)
def test_what_each_kernel_takes(operation, changes, caplog):
    (got, used), (expected, _) = called(operation, changes), called(operation, changes, "reference")
    assert used == "triton"
    assert_close(got, expected, rtol=5e-6, atol=5e-6)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        *((name, all_of(name, torch.float64)) for name in GIVEN),
        ("agf.core", {"coefficients": of(4, dtype=torch.float64)}),
        ("agf.core", {"keep": mask(1, 5)}),
        ("agf.core", {"projected": of(1, 2, 4 * 65), "num_heads": 1}),
        ("agf.core", {"projected": of(0, 5, 16)}),
        ("landmarks.attention", {"key_keep": mask(1, 5)}),
        ("landmarks.attention", {"renormalise": True}),
        ("landmarks.attention", {"function": "laplace"}),
        ("landmarks.attention", {"scale": of(2, 1, 1, 1)}),
        ("landmarks.attention", {"invert": partial(pseudo_inverse, iterations=2, start="batch")}),
        ("landmarks.attention", {"invert": exact_inverse}),
        ("landmarks.attention", {"precise": True}),
        ("landmarks.attention", {"v": of(2, 2, 5, 129)}),
        (
            "landmarks.attention",
            dict.fromkeys(("q_hat", "k_hat"), of(2, 2, MOST_LANDMARKS // 2 + 1, 4)),
        ),
        ("sfpc.fir", {"a": of(4, MOST_TAPS // 2 + 2)}),
        ("sfpc.fir", {"fft": True}),
        ("sfpc.fir", {"x": of(0, 5, 4)}),
        ("mdfwa.fusion", {"banded": of(1, 5, 4), "gate": None}),
        ("mdfwa.fusion", {"bias": of(1)}),
        ("mdfwa.fusion", {"bias": of(4, dtype=torch.float64)}),
        ("mdfwa.fusion", all_of("mdfwa.fusion", shape=(0, 5, 4))),
        ("fourier.chirp", {"wave": of(1, 5, dtype=torch.complex64)}),
        ("fourier.chirp", {"wave": of(5, dtype=torch.complex128)}),
        ("fourier.chirp", {"z": of(0, 5, 3)}),
        ("fourier.mix", {"keep": mask(2, 5)}),
        ("fourier.mix", {"form": "re_2d"}),
        ("fourier.mix", {"x": of(2, 5, 3)}),
        ("fourier.mix", {"x": of(0, 5, 4)}),
        ("wavelet.mix", {"weights": of(2, dtype=torch.float64)}),
        ("wavelet.mix", {"x": of(0, 5, 4)}),
        ("wavelet.mix", {"bank": filter_bank("db17")}),
    ],
)
def test_another_form_computes_it_and_is_told_once(operation, changes, caplog):
    for _ in range(2):
        got, used = called(operation, changes)
    assert used == NEXT.get(operation, "reference")
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
    changes = dict.fromkeys("qkv", of(1, 1, 5, width, dtype=torch.bfloat16))
    hat = of(1, 1, landmarks_given, width)
    given = arguments("landmarks.attention", changes | {"q_hat": hat, "k_hat": hat})
    implementations = OPERATIONS["landmarks.attention"].implementations
    takers = [each.name for each in implementations if each.takes(*given)]
    assert [name for name in takers if name.startswith("triton")] == taken
    assert takers[0] == ("triton" if "triton" in taken else "reference")


@pytest.mark.parametrize(
    ("operation", "changes", "reason"),
    [
        ("agf.core", {"num_heads": 3}, "multiply up"),
        ("agf.core", {"keep": mask(2, 4)}, "must match"),
        ("agf.core", {"keep": mask(2, 5, dtype=torch.int64)}, "bool"),
        ("landmarks.attention", {"key_keep": mask(2, 4)}, "size"),
        ("landmarks.attention", {"key_keep": mask(3, 5)}, "size"),
        ("landmarks.attention", {"k_hat": of(2, 2, 6, 5)}, "size"),
        ("sfpc.fir", {"keep": mask(1, 5)}, r"keep has the shape \(1, 5\), must be \(2, 5\)"),
        ("sfpc.fir", {"keep": mask(2, 4)}, "keep has the shape"),
        ("sfpc.fir", {"keep": mask(2, 4), "matrix": "shift"}, "size"),
        ("sfpc.fir", {"keep": mask(2, 5, dtype=torch.int64)}, "bool"),
        ("sfpc.fir", {"a": of(3, 3)}, "3 channels"),
        ("sfpc.fir", {"a": of(4, 3, dtype=torch.float64)}, "type"),
        ("mdfwa.fusion", {"banded": of(2, 4, 4)}, "size"),
        ("mdfwa.fusion", {"gate": of(2, 5, 4, dtype=torch.bfloat16)}, "dtype"),
        ("mdfwa.fusion", {"bias": of(3)}, "size"),
        ("fourier.chirp", {"wave": of(4, dtype=torch.complex64)}, "size"),
        ("wavelet.mix", {"lengths": torch.tensor([5, 5, 5])}, "size"),
    ],
)
def test_what_nothing_can_compute_is_refused_with_a_reason(operation, changes, reason):
    with pytest.raises((RuntimeError, ValueError), match=reason):
        called(operation, changes)


@pytest.mark.parametrize("operation", GIVEN)
def test_tensors_of_two_devices_and_values_without_keys_go_to_no_kernel(operation):
    """On the CPU torch itself may read them, beyond their ends."""
    triton = next(
        implementation
        for implementation in OPERATIONS[operation].implementations
        if implementation.name == "triton"
    )
    given = GIVEN[operation] | MASKED.get(operation, {})
    changes = [
        {name: tensor.to("meta")} for name, tensor in given.items() if torch.is_tensor(tensor)
    ]
    changes += [{"v": of(2, 2, 6, 4)}] if "v" in given else []
    assert triton.takes(*arguments(operation, given))
    assert [
        change for change in changes if triton.takes(*arguments(operation, given | change))
    ] == []
