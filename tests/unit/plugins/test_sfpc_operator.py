"""The ways of computing p(T) x against dense matrices: values, gradients, masks, and the algebra they must keep."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.errors import PluginError
from subquad_plugins.sfpc import naive
from subquad_plugins.sfpc.basis import steps_of, to_chebyshev
from subquad_plugins.sfpc.fir import fir
from subquad_plugins.sfpc.fourier import spectral_product, suits, transformed
from subquad_plugins.sfpc.operator import sfpc
from subquad_plugins.sfpc.spectrum import eigenvalues

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


def random(*shape, seed=0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def named(matrix) -> dict[str, Any]:
    """The arguments of `sfpc` for an operator in one word."""
    return {"operator": "laplacian", "boundary": matrix} if matrix in BOUNDARIES else {"operator": matrix}


def dense(x, c, matrix, basis, keep=None, column=None, **jacobi):
    """p(T) x sample by sample, T that of the real tokens, or of all of them with zeros at padding."""
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
    weights = random(*got.shape, seed=9)
    pairs = [(got, expected)]
    pairs += zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (got, expected)), strict=True)
    for ours, theirs in pairs:
        scale = max(1.0, float(theirs.detach().abs().max()))
        assert float((ours - theirs).detach().abs().max()) <= tolerance * scale


MASKS = {
    "none": None,
    "right": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]).bool(),
    "left": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 6 + [1]]).bool(),
    "gaps": torch.tensor([[1] * 7, [1, 0, 1, 1, 0, 0, 1], [0] * 7]).bool(),
}


@pytest.mark.parametrize("matrix", FIXED)
def test_masks_and_orders(matrix):
    for evaluation, mask, order in itertools.product(["reference", "conv", "fft"], MASKS, [0, 4, 9]):
        keep = MASKS[mask]
        x, c = random(3, 7, 4).requires_grad_(), random(2, order + 1, seed=1).requires_grad_()
        basis = "chebyshev" if matrix in BOUNDARIES else "monomial"
        y = sfpc(x, c, basis=basis, keep=keep, evaluation=evaluation, **named(matrix))
        assert_same(y, dense(x, c, matrix, basis, keep), (x, c))


@pytest.mark.parametrize(("basis", "jacobi", "evaluation"), WAYS)
def test_bases_and_lengths(basis, jacobi, evaluation):
    for matrix, length in itertools.product(BOUNDARIES, LENGTHS):
        c = random(4, 7, seed=1) * (0.25 ** torch.arange(7) if basis == "monomial" else 1.0)
        x, c = random(2, length, 4).requires_grad_(), c.requires_grad_()
        y = sfpc(x, c, basis=basis, evaluation=evaluation, **named(matrix), **jacobi)
        assert_same(y, dense(x, c, matrix, basis, **jacobi), (x, c))


@pytest.mark.parametrize("matrix", FIXED)
@pytest.mark.parametrize("length", [*LENGTHS, 25, 27])
def test_transforms_at_every_length(matrix, length):
    x, c = random(2, length, 3).requires_grad_(), random(3, 6, seed=1).requires_grad_()
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
    x, c = random(2, length, 4).requires_grad_(), random(5, seed=1).requires_grad_()
    column = random(length, seed=2).div(length).requires_grad_()
    keep = torch.arange(length).expand(2, -1) < torch.tensor([[length], [length // 2]]) if padded else None
    y = sfpc(x, c, "circulant", column=column, keep=keep, evaluation=evaluation)
    assert_same(y, dense(x, c, "circulant", "monomial", keep, column), (x, c, column))


@pytest.mark.ci
@pytest.mark.parametrize("fft", [False, True])
@pytest.mark.parametrize("matrix", FIXED)
def test_hand_written_gradients_pass_gradcheck_twice(matrix, fft):
    x, a = random(2, 4, 1).requires_grad_(), random(1, 3, seed=1).requires_grad_()
    keep = torch.tensor([[True] * 4, [False, True, True, False]])
    assert torch.autograd.gradcheck(lambda x, a: fir(x, a, matrix, None, fft), (x, a))
    assert torch.autograd.gradcheck(lambda x, a: fir(x, a, matrix, keep, fft), (x, a))
    assert torch.autograd.gradgradcheck(lambda x, a: fir(x, a, matrix, keep, fft), (x, a))


@pytest.mark.parametrize("size", [5, 6])
def test_spectral_product_passes_gradcheck_twice(size):
    x, kernel = random(2, 5, 2).requires_grad_(), random(size, 2, seed=1).requires_grad_()

    def product(x, kernel):
        return spectral_product(x, torch.fft.rfft(kernel, dim=0), size)

    assert torch.autograd.gradcheck(product, (x, kernel))
    assert torch.autograd.gradgradcheck(product, (x, kernel))


@pytest.mark.parametrize(("evaluation", "leak"), [("reference", 0.0), ("conv", 0.0), ("fft", 1e-13)])
@pytest.mark.parametrize("order", [1, 5, 40])
def test_the_shift_sees_nothing_later(order, evaluation, leak):
    """Lemma 4.1: the Jacobian's upper triangle is exactly zero, by FFT to rounding."""
    c = random(order + 1, seed=1)
    jacobian: Any = torch.autograd.functional.jacobian(
        lambda x: sfpc(x[None, :, None], c, "shift", evaluation=evaluation)[0, :, 0], random(12)
    )
    assert float(jacobian.triu(1).abs().max()) <= leak
    expected = torch.nn.functional.pad(c, (0, 12))[:12]
    torch.testing.assert_close(jacobian[:, 0], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("matrix", [*FIXED, "circulant"])
@pytest.mark.parametrize("length", [1, 2, 9, 16])
def test_eigenvalues_are_those_of_the_matrix(matrix, length):
    column = random(length)
    operator = naive.dense_operator(matrix, length, column)
    ours, theirs = eigenvalues(matrix, length, column).to(torch.complex128), torch.linalg.eigvals(operator)
    for z in theirs:
        assert float((ours - z).abs().min()) <= 1e-12
    torch.testing.assert_close(ours.sum(), operator.trace().to(torch.complex128), rtol=0, atol=1e-12 * length)


def test_norm_of_the_error_is_its_maximum_on_the_spectrum():
    """Theorem 4.1 for |T + 2 I| at degree 16, coefficients by a quadrature with 256 nodes: both norms are known."""
    order, length = 16, 64
    angles = torch.pi * (torch.arange(256, dtype=torch.float64) + 0.5) / 256
    waves = torch.cos(torch.arange(order + 1)[:, None] * angles)
    c = (2 * angles.cos()).abs() @ waves.T / 128
    c[0] /= 2
    values, vectors = torch.linalg.eigh(naive.dense_operator("neumann", length))
    exact = vectors @ torch.diag((values + 2).abs()) @ vectors.T
    gap = exact - sfpc(torch.eye(length, dtype=torch.float64)[None], c)[0]
    nodes = eigenvalues("neumann", length)
    terms = torch.cos(torch.arange(order + 1) * torch.acos(nodes / 2 + 1)[:, None])
    assert float(torch.linalg.matrix_norm(gap, ord=2)) == pytest.approx(0.075032437635, abs=1e-12)
    assert float(((nodes + 2).abs() - terms @ c).abs().max()) == pytest.approx(0.075032437635, abs=1e-12)


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("evaluation", ["reference", "conv", "fft"])
def test_enough_coefficients_give_any_filter_exactly(boundary, evaluation):
    """Degree L - 1 interpolates at every eigenvalue (Theorem 4.1): the error of |T + 2 I| is zero."""
    length = 12
    nodes = eigenvalues(boundary, length)
    terms = torch.cos(torch.arange(length) * torch.acos(nodes / 2 + 1)[:, None])
    c = torch.linalg.solve(terms, (nodes + 2).abs())
    values, vectors = torch.linalg.eigh(naive.dense_operator(boundary, length))
    exact = vectors @ torch.diag((values + 2).abs()) @ vectors.T
    eye = torch.eye(length, dtype=torch.float64)
    got = sfpc(eye[None], c, boundary=boundary, evaluation=evaluation)[0]
    torch.testing.assert_close(got, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("evaluation", ["reference", "conv", "fft"])
@pytest.mark.parametrize(("basis", "jacobi"), BASES[1:])
def test_single_precision_holds_at_order_64(basis, jacobi, evaluation):
    x, c = random(1, 96, 4), random(65, seed=1)
    exact = dense(x, c, "neumann", basis, **jacobi)
    got = sfpc(x.float(), c.float(), basis=basis, evaluation=evaluation, **jacobi)
    assert float((got - exact).abs().max()) <= 2e-5 * float(exact.abs().max())


@pytest.mark.parametrize("order", [1, 8, 12])
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
@pytest.mark.parametrize("length", [1, 30])
def test_powers_of_the_laplacian_keep_constants_in_single_precision(length, boundary, order):
    c = random(4, order + 1, seed=1).float()
    for evaluation in ("auto", "reference"):
        got = sfpc(torch.ones(1, length, 4), c, basis="monomial", boundary=boundary, evaluation=evaluation)
        torch.testing.assert_close(got, c[:, 0].expand(1, length, 4), rtol=1e-6, atol=0)


@pytest.mark.parametrize("order", [2, 8, 12])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("tokens", ["smooth", "random"])
def test_powers_of_the_laplacian_err_by_rounding_of_the_largest_p_in_single_precision(tokens, boundary, order):
    """What is small in the output of smooth tokens is lost, as it is to every form: rounding is amplified by |p|."""
    c = random(4, order + 1, seed=1).float().double()
    place = (torch.arange(30, dtype=torch.float64) + 0.5) / 30
    x = torch.cos(torch.pi * place)[None, :, None].expand(1, 30, 4) if tokens == "smooth" else random(1, 30, 4, seed=2)
    x = x.float().double()
    got = sfpc(x.float(), c.float(), basis="monomial", boundary=boundary)
    powers = torch.linspace(-4, 0, 101, dtype=torch.float64)[:, None] ** torch.arange(order + 1)
    largest = float((powers @ c.T).abs().max() * x.abs().max())
    assert float((got - dense(x, c, boundary, "monomial")).abs().max()) <= 1e-6 * largest


@settings(deadline=None, max_examples=20)
@given(
    matrix=st.sampled_from(FIXED),
    evaluation=st.sampled_from(["reference", "conv", "fft"]),
    length=st.integers(1, 12),
    order=st.integers(0, 8),
    factor=st.floats(-3, 3),
)
def test_linear_in_tokens_and_in_coefficients(matrix, evaluation, length, order, factor):
    def apply(x, c):
        return sfpc(x, c, evaluation=evaluation, **named(matrix))

    x, other = random(1, length, 2), random(1, length, 2, seed=1)
    c, more = random(order + 1, seed=2), random(order + 1, seed=3)
    torch.testing.assert_close(apply(x + factor * other, c), apply(x, c) + factor * apply(other, c), atol=1e-11, rtol=0)
    torch.testing.assert_close(apply(x, c + factor * more), apply(x, c) + factor * apply(x, more), atol=1e-11, rtol=0)
    torch.testing.assert_close(apply(x, c[:1]), c[0] * x, atol=1e-12, rtol=0)


@settings(deadline=None, max_examples=10)
@given(evaluation=st.sampled_from(["reference", "conv", "fft"]), length=st.integers(1, 12), by=st.integers(0, 11))
def test_symmetries(evaluation, length, by):
    x, c = random(1, length, 2), random(6, seed=1)
    for boundary in BOUNDARIES:
        backwards = sfpc(x.flip(1), c, boundary=boundary, evaluation=evaluation)
        torch.testing.assert_close(backwards, sfpc(x, c, boundary=boundary, evaluation=evaluation).flip(1))
    for matrix in ("periodic", "cyclic"):
        turned = sfpc(x.roll(by, 1), c, evaluation=evaluation, **named(matrix))
        torch.testing.assert_close(turned, sfpc(x, c, evaluation=evaluation, **named(matrix)).roll(by, 1))


def test_constants_pass_the_neumann_laplacian_scaled_by_p_at_zero():
    c = random(7)
    ones = torch.ones(1, 9, 1, dtype=torch.float64)
    torch.testing.assert_close(sfpc(ones, c), c.sum() * ones)


@pytest.mark.parametrize(("basis", "jacobi"), BASES)
def test_conversion_to_chebyshev_keeps_the_polynomials(basis, jacobi):
    t = torch.linspace(-1, 1, 41, dtype=torch.float64)
    variable = 2 * t - 2 if basis == "monomial" else t
    matrix = torch.tensor(to_chebyshev(basis, 10, **jacobi))
    terms = torch.cos(torch.arange(11) * torch.acos(t)[:, None])
    older, newer = torch.zeros_like(t), torch.ones_like(t)
    for k, step in enumerate(steps_of(basis, 10, **jacobi), 1):
        older, newer = newer, (step.slope * variable + step.shift) * newer - step.back * older
        torch.testing.assert_close(terms @ matrix[k], newer, rtol=1e-12, atol=1e-12 * 4**k)


def test_non_contiguous_tokens_give_the_same():
    x, c = random(7, 3, 4), random(4, 5)
    for matrix in FIXED:
        basis = "chebyshev" if matrix in BOUNDARIES else "monomial"
        for evaluation in ("reference", "conv", "fft"):
            chosen: Any = {"basis": basis, "evaluation": evaluation, **named(matrix)}
            turned = x.transpose(0, 1)
            torch.testing.assert_close(sfpc(turned, c, **chosen), sfpc(turned.contiguous(), c, **chosen))


@pytest.mark.parametrize("evaluation", ["reference", "conv", "fft"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("matrix", FIXED)
def test_no_tokens_give_none(matrix, masked, evaluation):
    x, keep = torch.zeros(2, 0, 4), torch.ones(2, 0, dtype=torch.bool) if masked else None
    assert sfpc(x, torch.ones(3), keep=keep, evaluation=evaluation, **named(matrix)).shape == (2, 0, 4)


REFUSED = [
    ({"operator": "wave"}, "sfpc: operator wave: choose laplacian, shift, cyclic, circulant"),
    ({"boundary": "open"}, "sfpc: boundary open: choose neumann, dirichlet, periodic"),
    ({"basis": "fourier"}, "basis fourier: choose monomial, monomial_rescaled, chebyshev or jacobi"),
    ({"operator": "shift", "basis": "jacobi"}, "sfpc: basis jacobi with operator shift, which takes powers only"),
    ({"basis": "monomial", "evaluation": "conv"}, r"evaluation conv with basis monomial: the taps of T\^k cancel"),
    (
        {"basis": "monomial", "evaluation": "fft"},
        "evaluation fft with basis monomial: .* use reference, float64, or basis cheb",
    ),
    ({"operator": "circulant"}, "sfpc: 6 tokens need a column of 6 values, got none"),
    ({"operator": "circulant", "column": torch.ones(5)}, r"need a column of 6 values, got one of shape \(5,\)"),
    ({"operator": "circulant", "column": torch.ones(6), "evaluation": "conv"}, "use fft or reference"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_does_not_fit_together_is_refused(given, message):
    with pytest.raises((PluginError, ValueError), match=message):
        sfpc(torch.zeros(1, 6, 4), torch.ones(3), **given)
    with pytest.raises(PluginError, match="sfpc: 3 rows of coefficients do not divide 4 channels evenly"):
        sfpc(torch.zeros(1, 6, 4), torch.ones(3, 2))
