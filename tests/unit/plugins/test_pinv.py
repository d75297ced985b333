"""Pseudo-inverses: against torch's, as spectral filters, one matrix at a time, with rows and
columns missing.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad_plugins.numerics.pinv import exact_inverse, pseudo_inverse, ridge_inverse

INVERSES = {
    "norms": partial(pseudo_inverse, iterations=6),
    "rows": partial(pseudo_inverse, iterations=6, start="rows"),
    "detached": partial(pseudo_inverse, iterations=6, through_start=False),
    "exact": exact_inverse,
    "ridge": partial(ridge_inverse, ridge=1e-3),
}


def stochastic(*shape: int, seed: int = 0) -> torch.Tensor:
    """Matrices whose rows sum to one."""
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(*shape, generator=generator, dtype=torch.float64), -1)


@settings(max_examples=20)
@given(rows=st.integers(1, 7), columns=st.integers(1, 7), seed=st.integers(0, 100))
def test_many_iterations_give_the_pseudo_inverse(rows, columns, seed):
    u = torch.rand(
        2, rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    u = u + 2 * torch.eye(rows, columns, dtype=torch.float64)
    torch.testing.assert_close(pseudo_inverse(u, 24), torch.linalg.pinv(u), rtol=0, atol=1e-9)


@pytest.mark.parametrize("iterations", [0, 1, 2, 6])
def test_an_iteration_filters_the_singular_values(iterations):
    values = torch.tensor([1.0, 0.5, 0.1, 0.01], dtype=torch.float64)
    u = torch.diag(values)[None]
    x = values**2  # the eigenvalues of U Z at the start, as both norms are 1
    for _ in range(iterations):
        x = x * (13 - 15 * x + 7 * x**2 - x**3) / 4
    torch.testing.assert_close(
        (u @ pseudo_inverse(u, iterations))[0].diagonal(), x, rtol=1e-12, atol=0
    )


def test_ridge_damps_the_singular_values():
    values = torch.tensor([1.0, 0.5, 0.1], dtype=torch.float64)
    z = ridge_inverse(torch.diag(values), 0.01)
    torch.testing.assert_close(z.diagonal(), values / (values**2 + 0.01), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", INVERSES)
def test_a_matrix_does_not_depend_on_the_others(name):
    u = stochastic(3, 2, 6, 6)
    other = torch.cat([u[:1], 7 * stochastic(2, 2, 6, 6, seed=1)])
    assert torch.equal(INVERSES[name](u)[0], INVERSES[name](other)[0])


@pytest.mark.parametrize("name", INVERSES)
def test_zero_rows_and_columns_change_nothing_else(name):
    u = stochastic(2, 5, 5).requires_grad_()
    wide = torch.zeros(2, 8, 8, dtype=torch.float64).requires_grad_()
    with torch.no_grad():
        wide[:, :5, :5] = u
    z, wide_z = INVERSES[name](u), INVERSES[name](wide)
    torch.testing.assert_close(wide_z[:, :5, :5], z, rtol=1e-12, atol=1e-12)
    assert not wide_z[:, 5:].any()
    assert not wide_z[:, :, 5:].any()
    weight = stochastic(2, 5, 5, seed=2)
    (grad,) = torch.autograd.grad((z * weight).sum(), u)
    (wide_grad,) = torch.autograd.grad((wide_z[:, :5, :5] * weight).sum(), wide)
    torch.testing.assert_close(wide_grad[:, :5, :5], grad, rtol=1e-9, atol=1e-9)
    assert wide_grad.isfinite().all()


@pytest.mark.parametrize("name", INVERSES)
def test_a_matrix_of_zeros_has_zero_as_inverse(name):
    u = torch.zeros(1, 4, 4, requires_grad=True)
    z = INVERSES[name](u)
    z.sum().backward()
    assert not z.any()
    assert u.grad is not None
    assert u.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name in INVERSES if name != "detached"])
def test_gradients_equal_finite_differences(name):
    # Not of rows that sum to one: the largest of equal sums has no derivative.
    u = (
        stochastic(2, 4, 4) * torch.tensor([1.0, 0.7, 1.3, 0.9], dtype=torch.float64)[:, None]
    ).requires_grad_()
    assert torch.autograd.gradcheck(INVERSES[name], (u,))


def test_only_the_scale_is_left_out_of_a_detached_gradient():
    u = stochastic(1, 5, 5).requires_grad_()
    followed, detached = (pseudo_inverse(u, 3, through_start=through) for through in (True, False))
    assert torch.equal(followed, detached)
    (a,), (b,) = (torch.autograd.grad(z.square().sum(), u) for z in (followed, detached))
    assert (a - b).abs().max() > 1e-3


def test_row_sums_far_above_one_diverge_from_the_rows_start_alone():
    u = 25 / 64 * (1 + 0.1 * stochastic(1, 64, 64))  # as Mega's Laplace function gives
    assert pseudo_inverse(u, 6).isfinite().all()
    assert not pseudo_inverse(u, 6, start="rows").isfinite().all()


@pytest.mark.parametrize("name", INVERSES)
def test_autocast_and_half_precision_are_worked_in_fp32(name):
    u = stochastic(2, 6, 6).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(INVERSES[name](u), INVERSES[name](u.clone()))
        z = INVERSES[name](u.bfloat16())
    assert z.dtype == torch.float32
    assert torch.equal(z, INVERSES[name](u.bfloat16().float()))
