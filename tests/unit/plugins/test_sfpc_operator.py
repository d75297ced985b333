"""The ways of computing p(T) x against dense matrices: values, gradients, masks, and the algebra
they must keep.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tensors import assert_near, drawn, gradients

from subquad.errors import PluginError
from subquad_plugins.sfpc import naive
from subquad_plugins.sfpc.fir import fir
from subquad_plugins.sfpc.fourier import spectral_product, suits, transformed
from subquad_plugins.sfpc.operator import sfpc

BOUNDARIES = ["neumann", "dirichlet", "periodic"]
FIXED = [*BOUNDARIES, "shift", "cyclic"]
BASES = [
    ("monomial", {}),
    ("monomial_rescaled", {}),
    ("chebyshev", {}),
    ("jacobi", {"jacobi_a": 1.5, "jacobi_b": -0.5}),
]
WAYS = [
    pytest.param(basis, jacobi, way, id=f"{basis}-{way}")
    for basis, jacobi in BASES
    for way in ("auto", "reference", "conv", "fft")
]
LENGTHS = [1, 2, 5, 16]


def named(matrix) -> dict[str, Any]:
    """The arguments of `sfpc` for an operator in one word."""
    return (
        {"operator": "laplacian", "boundary": matrix}
        if matrix in BOUNDARIES
        else {"operator": matrix}
    )


def dense(x, c, matrix, basis, keep=None, column=None, **jacobi):
    """p(T) x sample by sample, T that of the real tokens, or of all of them with zeros at
    padding.
    """
    pair = (jacobi.get("jacobi_a", 0.0), jacobi.get("jacobi_b", 0.0))
    outputs = []
    for index, tokens in enumerate(x):
        real = torch.ones(len(tokens), dtype=torch.bool) if keep is None else keep[index]
        where = torch.ones_like(real) if matrix in ("shift", "circulant") else real
        y = torch.zeros_like(tokens)
        if where.any():
            operator = naive.dense_operator(matrix, int(where.sum()), column)
            mixed = naive.sfpc((tokens * real[:, None])[where], c, operator, basis, *pair)
            y = y.index_put((where.nonzero()[:, 0],), mixed)
        outputs.append(y * real[:, None])
    return torch.stack(outputs)


def assert_same(got, expected, inputs, tolerance=1e-12):
    """Values and gradients of a weighted sum, relative to the largest."""
    ours, theirs = ((out, *gradients(out, inputs)) for out in (got, expected))
    for found, wanted in zip(ours, theirs, strict=True):
        assert_near(found, wanted, tolerance)


MASKS = {
    "none": None,
    "right": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]).bool(),
    "left": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 6 + [1]]).bool(),
    "gaps": torch.tensor([[1] * 7, [1, 0, 1, 1, 0, 0, 1], [0] * 7]).bool(),
}


@pytest.mark.parametrize("matrix", FIXED)
def test_masks_and_orders(matrix):
    for evaluation, mask, order in itertools.product(
        ["reference", "conv", "fft"], MASKS, [0, 4, 9]
    ):
        keep = MASKS[mask]
        x, c = drawn(3, 7, 4).requires_grad_(), drawn(2, order + 1, seed=1).requires_grad_()
        basis = "chebyshev" if matrix in BOUNDARIES else "monomial"
        y = sfpc(x, c, basis=basis, keep=keep, evaluation=evaluation, **named(matrix))
        assert_same(y, dense(x, c, matrix, basis, keep), (x, c))


@pytest.mark.parametrize(("basis", "jacobi", "evaluation"), WAYS)
def test_bases_and_lengths(basis, jacobi, evaluation):
    for matrix, length in itertools.product(BOUNDARIES, LENGTHS):
        c = drawn(4, 7, seed=1) * (0.25 ** torch.arange(7) if basis == "monomial" else 1.0)
        x, c = drawn(2, length, 4).requires_grad_(), c.requires_grad_()
        y = sfpc(x, c, basis=basis, evaluation=evaluation, **named(matrix), **jacobi)
        assert_same(y, dense(x, c, matrix, basis, **jacobi), (x, c))


@pytest.mark.parametrize("matrix", FIXED)
@pytest.mark.parametrize("length", [*LENGTHS, 25, 27])
def test_transforms_at_every_length(matrix, length):
    x, c = drawn(2, length, 3).requires_grad_(), drawn(3, 6, seed=1).requires_grad_()
    expected = dense(x, c, matrix, "chebyshev" if matrix in BOUNDARIES else "monomial")
    assert_same(transformed(x, c, matrix), expected, (x, c))


def test_transforms_are_used_where_they_are_quick():
    assert suits("neumann", 4096)
    assert not suits("dirichlet", 4096)  # 8194 = 2 * 17 * 241
    assert suits("dirichlet", 4049)
    assert not suits("periodic", 4093)
    assert suits("shift", 4093)
    assert all(suits("neumann", length) for length in (1, 2, 15, 25, 27, 675, 3125))
    assert not any(suits("periodic", length) for length in (7, 22, 49, 3127))


@pytest.mark.parametrize("evaluation", ["reference", "fft"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_circulants(length, padded, evaluation):
    x, c = drawn(2, length, 4).requires_grad_(), drawn(5, seed=1).requires_grad_()
    column = drawn(length, seed=2).div(length).requires_grad_()
    keep = (
        torch.arange(length).expand(2, -1) < torch.tensor([[length], [length // 2]])
        if padded
        else None
    )
    y = sfpc(x, c, "circulant", column=column, keep=keep, evaluation=evaluation)
    assert_same(y, dense(x, c, "circulant", "monomial", keep, column), (x, c, column))


@pytest.mark.ci
@pytest.mark.parametrize("fft", [False, True])
@pytest.mark.parametrize("matrix", FIXED)
def test_hand_written_gradients_pass_gradcheck_twice(matrix, fft):
    x, a = drawn(2, 4, 1).requires_grad_(), drawn(1, 3, seed=1).requires_grad_()
    keep = torch.tensor([[True] * 4, [False, True, True, False]])
    assert torch.autograd.gradcheck(lambda x, a: fir(x, a, matrix, None, fft), (x, a))
    assert torch.autograd.gradcheck(lambda x, a: fir(x, a, matrix, keep, fft), (x, a))
    assert torch.autograd.gradgradcheck(lambda x, a: fir(x, a, matrix, keep, fft), (x, a))


@pytest.mark.parametrize("size", [5, 6])
def test_spectral_product_passes_gradcheck_twice(size):
    x, kernel = drawn(2, 5, 2).requires_grad_(), drawn(size, 2, seed=1).requires_grad_()

    def product(x, kernel):
        return spectral_product(x, torch.fft.rfft(kernel, dim=0), size)

    assert torch.autograd.gradcheck(product, (x, kernel))
    assert torch.autograd.gradgradcheck(product, (x, kernel))


@pytest.mark.parametrize("evaluation", ["reference", "conv", "fft"])
@pytest.mark.parametrize(("basis", "jacobi"), BASES[1:])
def test_single_precision_holds_at_order_64(basis, jacobi, evaluation):
    x, c = drawn(1, 96, 4), drawn(65, seed=1)
    exact = dense(x, c, "neumann", basis, **jacobi)
    got = sfpc(x.float(), c.float(), basis=basis, evaluation=evaluation, **jacobi)
    assert float((got - exact).abs().max()) <= 2e-5 * float(exact.abs().max())


@pytest.mark.parametrize("order", [1, 8, 12])
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
@pytest.mark.parametrize("length", [1, 30])
def test_powers_of_the_laplacian_keep_constants_in_single_precision(length, boundary, order):
    c = drawn(4, order + 1, seed=1).float()
    for evaluation in ("auto", "reference"):
        got = sfpc(
            torch.ones(1, length, 4), c, basis="monomial", boundary=boundary, evaluation=evaluation
        )
        torch.testing.assert_close(got, c[:, 0].expand(1, length, 4), rtol=1e-6, atol=0)


@pytest.mark.parametrize("order", [2, 8, 12])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("tokens", ["smooth", "random"])
def test_powers_of_the_laplacian_err_by_rounding_of_the_largest_p_in_single_precision(
    tokens, boundary, order
):
    """What is small in the output of smooth tokens is lost, as it is to every form: rounding is
    amplified by |p|.
    """
    c = drawn(4, order + 1, seed=1).float().double()
    place = (torch.arange(30, dtype=torch.float64) + 0.5) / 30
    x = (
        torch.cos(torch.pi * place)[None, :, None].expand(1, 30, 4)
        if tokens == "smooth"
        else drawn(1, 30, 4, seed=2)
    )
    x = x.float().double()
    got = sfpc(x.float(), c.float(), basis="monomial", boundary=boundary)
    powers = torch.linspace(-4, 0, 101, dtype=torch.float64)[:, None] ** torch.arange(order + 1)
    largest = float((powers @ c.T).abs().max() * x.abs().max())
    assert float((got - dense(x, c, boundary, "monomial")).abs().max()) <= 1e-6 * largest


REFUSED = [
    ({"operator": "wave"}, "sfpc: operator wave: choose laplacian, shift, cyclic, circulant"),
    ({"boundary": "open"}, "sfpc: boundary open: choose neumann, dirichlet, periodic"),
    (
        {"basis": "fourier"},
        "basis fourier: choose monomial, monomial_rescaled, chebyshev or jacobi",
    ),
    (
        {"operator": "shift", "basis": "jacobi"},
        "sfpc: basis jacobi with operator shift, which takes powers only",
    ),
    (
        {"basis": "monomial", "evaluation": "conv"},
        r"evaluation conv with basis monomial: the taps of T\^k cancel",
    ),
    (
        {"basis": "monomial", "evaluation": "fft"},
        "evaluation fft with basis monomial: .* use reference, float64, or basis cheb",
    ),
    ({"operator": "circulant"}, "sfpc: 6 tokens need a column of 6 values, got none"),
    (
        {"operator": "circulant", "column": torch.ones(5)},
        r"need a column of 6 values, got one of shape \(5,\)",
    ),
    (
        {"operator": "circulant", "column": torch.ones(6), "evaluation": "conv"},
        "use fft or reference",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_does_not_fit_together_is_refused(given, message):
    with pytest.raises((PluginError, ValueError), match=message):
        sfpc(torch.zeros(1, 6, 4), torch.ones(3), **given)
    with pytest.raises(
        PluginError, match="sfpc: 3 rows of coefficients do not divide 4 channels evenly"
    ):
        sfpc(torch.zeros(1, 6, 4), torch.ones(3, 2))
