"""Each implementation on the device against the reference in float64: values and gradients, in
three number formats.

The arguments are those that a mixer gives its operations, under autocast where the format is a half
one.
"""

from __future__ import annotations

import pytest
import torch
from built_in import abouts
from torch.nn.functional import conv1d
from torch.utils._pytree import tree_leaves, tree_map

from subquad.nn.kernels import recording, using
from subquad.nn.mixer import as_output
from subquad.nn.numbers import single_precision
from subquad_check.calls import padded
from subquad_check.subject import check_subjects

pytestmark = pytest.mark.gpu

FORMATS = [torch.float32, torch.bfloat16, torch.float16]
FIRST = {name: about.first for name, about in abouts().items() if about.first}


def mixer(name, length, causal=False, **params):
    """A mixer, at its defaults but for some parameters, in float32, causal where that is wanted or
    all it can be; tokens of two samples, and their mask.
    """
    subjects = list(check_subjects(f"subquad:{name}", params, dim=32))
    subject = next((one for one in subjects if one.causal and causal), subjects[0])
    x = subject.tokens(2, length, dtype=torch.float32)
    return (
        subject.build(max_len=length, dtype=torch.float32),
        x,
        padded(length, (length, (length + 1) // 2)),
    )


def calls(name, length, dtype, **params):
    """What the mixer calls its operations with, on the CPU, with a mask and without; not those of
    whole layers, which the certificate has.
    """
    built, x, keep = mixer(name, length, **params)
    half = torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
    with recording() as found, using("reference"), half:
        for mask in (keep, None):
            built(x, keep=mask)
    return [
        call
        for call in found
        if not any(isinstance(argument, torch.nn.Module) for argument in call[1])
    ]


def tensors(tree):
    """Tensors of numbers, which have gradients."""
    leaves = [leave for leave in tree_leaves(tree) if isinstance(leave, torch.Tensor)]
    return [leave for leave in leaves if leave.is_floating_point() or leave.is_complex()]


def results(function, args, kwargs, change):
    """Outputs and gradients of a weighted sum of them; every tensor goes through `change`
    before.
    """

    def leaf(value):
        value = change(value.detach()) if isinstance(value, torch.Tensor) else value
        return value.requires_grad_() if tensors(value) else value

    args, kwargs = tree_map(leaf, (args, kwargs))
    outputs, inputs = tensors(function(*args, **kwargs)), tensors((args, kwargs))
    weights = [
        torch.randn(output.shape, generator=torch.Generator().manual_seed(9)).to(output)
        for output in outputs
    ]
    gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
    return [
        *outputs,
        *(torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)),
    ]


def widened(value):
    return (
        value.to(torch.complex128 if value.is_complex() else torch.float64)
        if tensors(value)
        else value
    )


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize(
    ("name", "length", "params"),
    [(name, *compared) for name, about in abouts().items() for compared in about.compared],
)
def test_every_implementation_equals_the_reference(name, length, params, dtype, device):
    compared = set()
    for operation, args, kwargs in calls(name, length, dtype, **params):
        with using("reference"):
            expected = results(operation, args, kwargs, widened)
        moved = tree_map(
            lambda value: value.to(device) if isinstance(value, torch.Tensor) else value,
            (args, kwargs),
        )
        for implementation in operation.implementations:
            if not implementation.takes(*moved[0], **moved[1]):
                continue
            got = results(implementation.function, args, kwargs, lambda x: x.to(device))
            compared.add(f"{operation.name} {implementation.name}")
            for mine, wanted in zip(got, expected, strict=True):
                assert mine.isfinite().all(), (implementation.name, mine.shape)
                allowed = 5e-5 if dtype == torch.float32 else 6 * torch.finfo(dtype).eps
                gap = (widened(mine.detach().cpu()) - wanted.detach()).abs().max()
                assert gap <= allowed * max(1.0, float(wanted.detach().abs().max())), (
                    implementation.name,
                    mine.shape,
                    mine.dtype,
                )
    assert compared


FLASH = [name for name, about in abouts().items() if about.fla]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FLASH)
def test_kernels_of_flash_linear_attention(name, dtype, device, monkeypatch):
    """Under autocast by themselves, in float32 with TF32."""
    pytest.importorskip("fla")
    if device == "cpu":
        pytest.skip("kernels are for CUDA")
    built, x, keep = mixer(name, 520, causal=True)
    half = dtype == torch.bfloat16
    expected = results(lambda x: as_output(built.double()(x, keep=keep)).out, (x,), {}, widened)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", not half)
    built, keep = built.float().to(device), keep.to(device)

    def called(x):
        with torch.autocast(device, dtype, enabled=half):
            return as_output(built(x, keep=keep)).out.float()

    with using() as used:
        got = results(called, (x,), {}, lambda x: x.to(device))
    assert {used[operation] for operation in abouts()[name].fla} == {"fla"}
    for mine, wanted in zip(got, expected, strict=True):
        gap = (mine.detach().cpu().double() - wanted.detach()).square().mean().sqrt()
        assert gap <= (0.05 if half else 5e-3) * wanted.detach().square().mean().sqrt()


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", FIRST)
def test_which_implementation_runs(name, dtype, device):
    if device == "cpu":
        pytest.skip("kernels are for CUDA")
    built, x, keep = mixer(name, 520)
    built, x, keep = (value.to(device) for value in (built, x, keep))
    with using() as used, torch.autocast(device, dtype, enabled=dtype != torch.float32):
        built(x, keep=keep)
    assert used == used | FIRST[name]


@pytest.mark.parametrize("kind", ["float64", "compiled"])
@pytest.mark.parametrize("name", FIRST)
def test_beyond_the_limits_another_one_runs(name, kind, device):
    if device == "cpu":
        pytest.skip("kernels are for CUDA")
    built, x, keep = (tensor.to(device) for tensor in mixer(name, 65))
    with using() as used:
        if kind == "float64":
            built.double()(x.double(), keep=keep)
        else:
            torch.compile(built, backend="aot_eager")(x, keep=keep)
    (operation,) = FIRST[name]
    assert used[operation] not in ("triton", "packed")


def test_convolutions_of_float32_are_exact_where_it_is_promised(device):
    x, weight = torch.randn(4, 64, 257), torch.randn(64, 64, 9)
    exact = conv1d(x.double(), weight.double())
    with single_precision():
        found = conv1d(x.to(device), weight.to(device)).cpu().double()
    assert (found - exact).abs().max() <= 1e-6 * exact.abs().max()


def test_the_wavelets_convolutions_are_exact_by_themselves(device):
    (operation, args, kwargs), _ = calls("wavelet", 65, torch.float32)
    with using("reference"):
        expected = results(operation, args, kwargs, widened)
    with using({"wavelet.mix": "conv1d"}):
        found = results(operation, args, kwargs, lambda x: x.to(device))
    for mine, wanted in zip(found, expected, strict=True):
        gap = (widened(mine.detach().cpu()) - wanted.detach()).abs().max()
        assert gap <= 5e-6 * max(1.0, float(wanted.detach().abs().max()))
