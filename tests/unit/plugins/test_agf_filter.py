"""The fast filter: hand-written gradients, both schemes, precision, agreement with SciPy and
with plain operations.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from tensors import assert_alike

from subquad.nn.kernels import using
from subquad_plugins.agf import filter as fast
from subquad_plugins.numerics.jacobi import (
    amplification,
    basis_steps,
    in_y,
    monomial_matrix,
    powers_of_y,
)

BASES = [
    ("jacobi", 2.0, -1.0),
    ("jacobi", 1.0, 0.2),
    ("legendre", 0.0, 0.0),
    ("chebyshev", 0.0, 0.0),
    ("monomial", 0.0, 0.0),
]


def inputs(shape=(3, 7), order=4, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    vectors, logits = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2))
    return (
        vectors.requires_grad_(),
        (2 * logits).requires_grad_(),
        torch.randn(order + 1, generator=generator, dtype=dtype),
    )


def plain(vectors, logits, coefficients, steps):
    return vectors * fast.polynomial(2 * torch.sigmoid(logits) - 1, coefficients, steps)


@pytest.mark.ci
@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("recurrence", [False, True])
def test_hand_written_gradients_pass_gradcheck(order, recurrence):
    vectors, logits, coefficients = inputs(order=order)
    steps = in_y(basis_steps("jacobi", order, 1.5, -0.5), "unit") if recurrence else None
    assert torch.autograd.gradcheck(
        lambda u, s, c: fast.filtered_vectors(u, s, c, steps),
        (vectors, logits, coefficients.requires_grad_()),
    )


@pytest.mark.parametrize(("basis", "a", "b"), BASES)
@pytest.mark.parametrize("sigma_map", ["unit", "symmetric"])
@pytest.mark.parametrize("piece", [5, 1 << 18])
def test_fast_equals_plain_in_values_and_gradients(monkeypatch, basis, a, b, sigma_map, piece):
    monkeypatch.setattr(fast, "CPU_PIECE", piece)
    steps = in_y(basis_steps(basis, 6, a, b), sigma_map)
    vectors, logits, coefficients = inputs(order=6)
    coefficients.requires_grad_()
    given = (vectors, logits, coefficients)
    for chosen in (steps, None):
        found = fast.filtered_vectors(*given, chosen)
        assert_alike(found, plain(*given, chosen), given, 1e-12)


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_forms_that_run_only_where_forced_equal_the_reference(monkeypatch):
    monkeypatch.setattr(fast, "CPU_PIECE", 1)
    results = []
    for name in ("reference", "compiled", "recurrence"):
        given = *inputs(dtype=torch.float32)[:2], torch.tensor([0.3, -1.0, 0.5], requires_grad=True)
        with using({"agf.filter": name}):
            out = fast.filtered_vectors(*given, None)
            results.append((out, *torch.autograd.grad(out.square().sum(), given)))
    for got in results[1:]:
        torch.testing.assert_close(got, results[0])


@pytest.mark.ci
def test_compiled_graph_uses_plain_operations_and_agrees():
    steps = in_y(basis_steps("chebyshev", 10, 0.0, 0.0), "unit")
    vectors, logits, coefficients = inputs(order=10)
    compiled = torch.compile(fast.filtered_vectors, backend="eager", fullgraph=True)
    for chosen in (steps, None):
        expected = fast.filtered_vectors(vectors, logits, coefficients, chosen)
        torch.testing.assert_close(
            compiled(vectors, logits, coefficients, chosen), expected, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    ("order", "a", "b"),
    [
        *((32, a, b) for a in (-0.9, -0.5, 1.0, 4.0) for b in (-0.9, 0.0, 4.0)),
        *((10, a, b) for a in (1.0, 1.5, 2.0) for b in (-2.0, -1.5, -1.0)),
    ],
)
def test_single_precision_holds_where_polynomials_are_orthogonal_and_for_published_settings(
    order, a, b
):
    steps = in_y(basis_steps("jacobi", order, a, b), "unit")
    matrix = powers_of_y(steps)
    y = torch.linspace(-1, 1, 501, dtype=torch.float64)
    only_last = torch.eye(order + 1, dtype=torch.float64)[order]
    expected = fast.polynomial(y, only_last, steps)
    if matrix is None:
        got = fast.polynomial(y.float(), only_last.float(), steps)
    else:
        got = fast.polynomial(y.float(), (only_last @ torch.from_numpy(matrix)).float(), None)
    assert float((got - expected).abs().max()) <= 2e-4 * max(1.0, float(expected.abs().max()))


def test_powers_are_used_only_while_well_conditioned():
    legendre = [in_y(basis_steps("legendre", order, 0.0, 0.0), "symmetric") for order in (5, 9)]
    assert powers_of_y(legendre[0]) is not None
    assert powers_of_y(legendre[1]) is None
    assert amplification(monomial_matrix(legendre[1])) == pytest.approx(475.4, rel=1e-2)
    np.testing.assert_allclose(monomial_matrix(legendre[0])[2], [-0.5, 0, 1.5, 0, 0, 0], atol=1e-15)
