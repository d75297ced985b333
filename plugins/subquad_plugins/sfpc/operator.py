"""The operator itself, Y = p(T) X, as a pure function of tokens and coefficients.

Letters: B batch, L length, D width, K order, G groups of channels that share a polynomial.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.sfpc import cancels, default_basis, quickest
from subquad_plugins.sfpc.basis import Steps, steps_of, to_chebyshev
from subquad_plugins.sfpc.fir import fir
from subquad_plugins.sfpc.fourier import circulant, suits, transformed
from subquad_plugins.sfpc.reference import recurrence

BOUNDARIES = ("neumann", "dirichlet", "periodic")
OPERATORS = ("laplacian", "shift", "cyclic", "circulant")


def sfpc(
    x: Tensor,
    coefficients: Tensor,
    operator: str = "laplacian",
    basis: str = "auto",
    *,
    boundary: str = "neumann",
    jacobi_a: float = 0.0,
    jacobi_b: float = 0.0,
    column: Tensor | None = None,
    keep: Tensor | None = None,
    evaluation: str = "auto",
) -> Tensor:
    """p(T) x along the sequence, with p = sum_k c_k P_k.

    P_k is T^k (`monomial`) or, with t = T / 2 + I, t^k (`monomial_rescaled`), T_k(t) (`chebyshev`)
    or P_k^(a,b)(t) (`jacobi`, standard, unnormalised). Shifts and circulants take powers only.

    Args:
        x: (B, L, D), float32 or float64.
        coefficients: (K+1,) for all channels, or (G, K+1) for G equal groups of neighbouring
            channels.
        operator: laplacian (tridiagonal 1, -2, 1), shift (S_ij = 1 where i = j + 1), cyclic (the
            same, around the end) or circulant (C_ij = f[(i - j) mod L]).
        basis: see above; auto: chebyshev for a Laplacian, else monomial.
        boundary: of the Laplacian: neumann (-1 in the corners), dirichlet (-2) or periodic.
        jacobi_a: a.
        jacobi_b: b.
        column: (L,), f, the circulant's first column.
        keep: (B, L) bool, True = real token. T is that of each sample's real tokens in their order;
            the shift and the circulant take padding as zeros instead.
        evaluation: auto, reference (Horner, Clenshaw), conv or fft. Equal to rounding; of a
            Laplacian's monomial in float64 alone, other formats take auto and reference.

    Returns:
        (B, L, D), zero at padding.

    Raises:
        PluginError: names that do not fit together, or a column of another length.

    Reference: Hussain et al. 2025, Definition 4.1, Y = p_k(T) X.
    """
    if basis == "auto":
        basis = default_basis(operator)
    if evaluation == "auto":
        evaluation = quickest(operator, coefficients.shape[-1] - 1, basis)
    _refuse(operator, basis, boundary, evaluation, column, x)
    order = coefficients.shape[-1] - 1
    way = way_of(
        operator, basis, evaluation, order, boundary=boundary, jacobi_a=jacobi_a, jacobi_b=jacobi_b
    )
    return applied(x, coefficients, way, column, keep)


@dataclass(frozen=True, eq=False)
class Way:
    """How p(T) is computed: what follows from names and order alone.

    Plain values, no tensors: cast to half precision with a model, `conversion` would lose its
    digits.
    """

    matrix: str
    """neumann, dirichlet, periodic, shift, cyclic or circulant."""
    evaluation: str
    """reference, conv or fft."""
    steps: Steps
    """The basis as a recurrence, K of them."""
    rescaled: bool
    """Whether the polynomials are in T / 2 + I rather than T."""
    conversion: np.ndarray | None
    """(K+1, K+1), to Chebyshev coefficients, where the evaluation wants them and they are not
    given.
    """


def way_of(
    operator: str,
    basis: str,
    evaluation: str,
    order: int,
    *,
    boundary: str = "neumann",
    jacobi_a: float = 0.0,
    jacobi_b: float = 0.0,
) -> Way:
    """The way for names as `sfpc` takes them, but none of them auto."""
    laplacian = operator == "laplacian"
    quick = evaluation != "reference"
    return Way(
        matrix=boundary if laplacian else operator,
        evaluation=evaluation,
        steps=steps_of(basis, order, jacobi_a, jacobi_b),
        rescaled=laplacian and basis != "monomial",
        conversion=to_chebyshev(basis, order, jacobi_a, jacobi_b)
        if laplacian and quick and basis != "chebyshev"
        else None,
    )


def applied(
    x: Tensor,
    coefficients: Tensor,
    way: Way,
    column: Tensor | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """p(T) x by the way given, (B, L, D), zero at padding; arguments as of `sfpc`."""
    if not x.shape[1]:
        return x
    if way.conversion is not None:
        coefficients = on_chebyshev(coefficients, way.conversion)
    c = per_channel(coefficients.to(torch.promote_types(x.dtype, torch.float32)), x.shape[2])
    if way.evaluation == "reference":
        return recurrence(wide(x), c, way.steps, way.matrix, column, keep, rescaled=way.rescaled)
    return convolved(x, c, way.matrix, way.evaluation, column, keep)


def convolved(
    x: Tensor,
    a: Tensor,
    matrix: str,
    evaluation: str,
    column: Tensor | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """p(T) x by the quick ways.

    Args:
        x: (B, L, D).
        a: (D, K+1), Chebyshev coefficients of a Laplacian, powers of the others.
        matrix: neumann, dirichlet, periodic, shift, cyclic or circulant.
        evaluation: conv or fft.
        column: (L,), of the circulant.
        keep: (B, L) bool.

    Returns:
        (B, L, D), zero at padding.
    """
    whole = keep is None or matrix == "shift"
    if matrix != "circulant" and (
        evaluation == "conv" or not whole or not suits(matrix, x.shape[1])
    ):
        return fir(x, a, matrix, keep, fft=evaluation == "fft")
    x = wide(x)
    if keep is not None:
        x = x.masked_fill(~keep[..., None], 0.0)
    if matrix == "circulant":
        assert column is not None
        y = circulant(x, a, column)
    else:
        y = transformed(x, a, matrix)
    if keep is None:
        return y
    return y.masked_fill(~keep[..., None], 0.0)


def per_channel(coefficients: Tensor, dim: int) -> Tensor:
    """(K+1,) or (G, K+1) as (D, K+1)."""
    if coefficients.dim() == 2:
        grouped = coefficients
    else:
        grouped = coefficients[None]
    if dim % len(grouped):
        raise PluginError(
            f"sfpc: {len(grouped)} rows of coefficients do not divide {dim} channels evenly"
        )
    return grouped.repeat_interleave(dim // len(grouped), 0)


def on_chebyshev(coefficients: Tensor, conversion: np.ndarray) -> Tensor:
    """Coefficients of another basis as Chebyshev coefficients, c @ M.

    In float64, whose products autocast leaves alone, also where a backward pass starts under it.

    Args:
        coefficients: (G, K+1).
        conversion: M, (K+1, K+1), of `to_chebyshev`.

    Returns:
        (G, K+1) float64.
    """
    return coefficients.double() @ torch.as_tensor(
        conversion, dtype=torch.float64, device=coefficients.device
    )


def _refuse(
    operator: str, basis: str, boundary: str, evaluation: str, column: Tensor | None, x: Tensor
) -> None:
    if operator not in OPERATORS:
        raise PluginError(f"sfpc: operator {operator}: choose {', '.join(OPERATORS)}")
    if boundary not in BOUNDARIES:
        raise PluginError(f"sfpc: boundary {boundary}: choose {', '.join(BOUNDARIES)}")
    if operator != "laplacian" and basis != "monomial":
        raise PluginError(
            f"sfpc: basis {basis} with operator {operator}, which takes powers only: use monomial"
        )
    if evaluation in ("conv", "fft") and cancels(operator, basis) and x.dtype != torch.float64:
        raise PluginError(
            f"sfpc: evaluation {evaluation} with basis monomial: the taps of T^k "
            "cancel from parts as large as 4^k; "
            "use reference, float64, or basis chebyshev"
        )
    if operator == "circulant":
        if column is None or column.shape != x.shape[1:2]:
            if column is None:
                given = "none"
            else:
                given = f"one of shape {tuple(column.shape)}"
            raise PluginError(
                f"sfpc: {x.shape[1]} tokens need a column of {x.shape[1]} values, got {given}"
            )
        if evaluation == "conv":
            raise PluginError("sfpc: evaluation conv with operator circulant: use fft or reference")
