"""Jacobi polynomials by their three-term recurrence, and where that recurrence breaks down. Imports
no torch.

P_k(x) = (A_k x + B_k) P_{k-1}(x) - C_k P_{k-2}(x), with P_0 = 1, P_{-1} = 0 and, for k >= 2, n = 2k
+ a + b: A_k = n (n-1) / (2k (k+a+b)),  B_k = (n-1) (a^2-b^2) / (2k (k+a+b) (n-2)),  C_k = (k+a-1)
(k+b-1) n / (k (k+a+b) (n-2)).

Letters: K order, a and b the Jacobi parameters, x the polynomial's variable, y = 2 sigma - 1 in
[-1, 1].
Reference: Abramowitz and Stegun 22.7.1; equal to `scipy.special.eval_jacobi`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from subquad.plugin import When, param

POLE_DISTANCE = 1e-6
"""A denominator of the recurrence nearer to zero than this is a pole: its coefficients would
drown everything else.
"""

WORST_AMPLIFICATION = 50.0
"""Largest loss of precision accepted for powers of y: 50 rounding errors are 3e-6 in fp32, 6e-15
in fp64.
"""


def jacobi_param(
    letter: Literal["a", "b"],
    default: float,
    search: Sequence[float],
    when: When | None = None,
) -> Any:
    """The field of a Jacobi parameter in a mixer's `Config`; `search` and `when` as for
    `subquad.plugin.param`.
    """
    meaning = f"Jacobi parameter {letter}; orthogonal for {letter} > -1"
    return param(default, meaning=meaning, symbol=letter, ge=-2, le=4, search=search, when=when)


@dataclass(frozen=True)
class Step:
    """One step of the recurrence, P_k = (slope x + shift) P_{k-1} - back P_{k-2}."""

    slope: float
    shift: float
    back: float


def pole(order: int, a: float, b: float) -> int | None:
    """The first k of 2..order at which the recurrence divides by zero, or None."""
    for k in range(2, order + 1):
        if min(abs(k + a + b), abs(2 * k + a + b - 2)) < POLE_DISTANCE:
            return k
    return None


def jacobi_steps(order: int, a: float, b: float) -> tuple[Step, ...]:
    """Steps 1..order in the variable x of P_k^{(a, b)}."""
    first = Step((a + b + 2) / 2, (a - b) / 2, 0.0)
    return (first, *(_jacobi_step(k, a, b) for k in range(2, order + 1)))[:order]


def _jacobi_step(k: int, a: float, b: float) -> Step:
    n = 2 * k + a + b
    scale = k * (k + a + b)
    return Step(
        n * (n - 1) / (2 * scale),
        (n - 1) * (a * a - b * b) / (2 * scale * (n - 2)),
        (k + a - 1) * (k + b - 1) * n / (scale * (n - 2)),
    )


def basis_steps(basis: str, order: int, a: float, b: float) -> tuple[Step, ...]:
    """Steps 1..order of a named basis: `jacobi`, `legendre` (a=b=0), `chebyshev` (a=b=-1/2) or
    `monomial` (x^k).

    `chebyshev` keeps the Jacobi normalisation P_k(1) = C(k-1/2, k), as the authors' code does; it
    is not T_k.
    """
    if basis == "monomial":
        return (Step(1.0, 0.0, 0.0),) * order
    named = {"jacobi": (a, b), "legendre": (0.0, 0.0), "chebyshev": (-0.5, -0.5)}
    return jacobi_steps(order, *named[basis])


def in_y(steps: tuple[Step, ...], sigma_map: str) -> tuple[Step, ...]:
    """The same polynomials in y = 2 sigma - 1: x = sigma = (1 + y) / 2 for `unit`, x = y for
    `symmetric`.
    """
    if sigma_map == "unit":
        offset = 0.5
        scale = 0.5
    else:
        offset = 0.0
        scale = 1.0
    return tuple(
        Step(step.slope * scale, step.shift + step.slope * offset, step.back) for step in steps
    )


def monomial_matrix(steps: tuple[Step, ...]) -> np.ndarray:
    """(K+1, K+1) float64: row k holds the coefficients of P_k on 1, y, .., y^K."""
    matrix = np.zeros((len(steps) + 1, len(steps) + 1))
    matrix[0, 0] = 1.0
    for k, step in enumerate(steps, 1):
        matrix[k] = step.shift * matrix[k - 1]
        matrix[k, 1:] += step.slope * matrix[k - 1, :-1]
        if k > 1:
            matrix[k] -= step.back * matrix[k - 2]
    return matrix


def amplification(matrix: np.ndarray) -> float:
    """How many rounding errors powers of y cost: the largest over k of sum_j |M_kj| / max_[-1,1]
    |P_k(y)|.
    """
    nodes = np.cos(np.linspace(0.0, np.pi, 16 * len(matrix)))
    peaks = np.abs(np.vander(nodes, len(matrix), increasing=True) @ matrix.T).max(0)
    return float((np.abs(matrix).sum(1) / np.maximum(peaks, np.finfo(float).tiny)).max())


def powers_of_y(steps: tuple[Step, ...]) -> np.ndarray | None:
    """The conversion to powers of y where it is well conditioned, so that Horner's scheme may be
    used; else None.

    Expanded about sigma = 1/2 rather than 0, the authors' best settings up to order 10 all are.
    """
    matrix = monomial_matrix(steps)
    return matrix if amplification(matrix) <= WORST_AMPLIFICATION else None
