"""Bases of polynomials, as three-term recurrences and as sums of Chebyshev polynomials. Imports no
torch.

With t = T / 2 + I the Laplacian's spectrum [-4, 0] becomes [-1, 1]. There T_n(cos w) = cos(n w), so
Chebyshev coefficients are the taps of a symmetric convolution: sum_n a_n T_n(t) adds a_n / 2 times
the tokens n to either side. Every other basis but T's powers, whose taps cancel, is brought to this
one.

Letters: K order, c coefficients in the given basis, a coefficients in the Chebyshev basis.
"""

from __future__ import annotations

import numpy as np

from subquad_plugins.numerics.jacobi import Step, jacobi_steps

Steps = tuple[Step, ...]


def steps_of(basis: str, order: int, jacobi_a: float = 0.0, jacobi_b: float = 0.0) -> Steps:
    """Steps 1..order of P_k = (slope x + shift) P_{k-1} - back P_{k-2}, P_0 = 1.

    x is T for `monomial`, and t = T / 2 + I for `monomial_rescaled`, `chebyshev` and `jacobi`
    (standard, unnormalised: P_1 = (a + b + 2) / 2 t + (a - b) / 2).

    Raises:
        ValueError: there is no such basis.
    """
    if basis in ("monomial", "monomial_rescaled"):
        return (Step(1.0, 0.0, 0.0),) * order
    if basis == "chebyshev":
        return (Step(1.0, 0.0, 0.0), *(Step(2.0, 0.0, 1.0),) * max(0, order - 1))[:order]
    if basis == "jacobi":
        return jacobi_steps(order, jacobi_a, jacobi_b)
    raise ValueError(f"basis {basis}: choose monomial, monomial_rescaled, chebyshev or jacobi")


def to_chebyshev(
    basis: str, order: int, jacobi_a: float = 0.0, jacobi_b: float = 0.0
) -> np.ndarray:
    """(K+1, K+1) float64: row k holds the coefficients of P_k on T_0(t), .., T_K(t), so that a =
    c @ matrix.
    """
    matrix = np.zeros((order + 1, order + 1))
    matrix[0, 0] = 1.0
    for k, step in enumerate(steps_of(basis, order, jacobi_a, jacobi_b), 1):
        if basis == "monomial":
            slope = 2 * step.slope
            shift = step.shift - 2 * step.slope
        else:
            slope = step.slope
            shift = step.shift
        matrix[k] = slope * _times_t(matrix[k - 1]) + shift * matrix[k - 1]
        if k > 1:
            matrix[k] -= step.back * matrix[k - 2]
    return matrix


def _times_t(a: np.ndarray) -> np.ndarray:
    """t T_n = (T_{n+1} + T_{|n-1|}) / 2; the highest coefficient is zero before and not
    afterwards.
    """
    product = np.zeros_like(a)
    product[1:] += a[:-1] / 2
    product[:-1] += a[1:] / 2
    if len(a) > 1:
        product[1] += a[0] / 2
    return product
