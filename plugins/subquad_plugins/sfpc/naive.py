"""SFPC written as the paper states it, with the L x L matrices T and p(T): the oracle of the fast
forms.

Letters: B batch, L length, D model width, K order, G groups of channels.
Reference: Hussain et al. 2025, Definition 4.1, Y = p_k(T) X with p_k = sum_i c_i T^i; the layer
around it is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from subquad_plugins.numerics.jacobi import jacobi_steps
from subquad_plugins.sfpc import Config


def dense_operator(matrix: str, length: int, column: Tensor | None = None) -> Tensor:
    """T, (L, L) float64.

    Args:
        matrix: neumann, dirichlet, periodic, shift, cyclic or circulant.
        length: L.
        column: (L,), the circulant's first column.
    """
    eye = torch.eye(length, dtype=torch.float64)
    below = torch.diag(torch.ones(length - 1, dtype=torch.float64), -1)
    around = eye.roll(1, 0)
    if matrix == "circulant":
        assert column is not None
        lag = torch.arange(length)
        return column[(lag[:, None] - lag) % length]
    if matrix in ("shift", "cyclic"):
        return below if matrix == "shift" else around
    if matrix == "periodic":
        return around + around.T - 2 * eye
    laplacian = below + below.T - 2 * eye
    if matrix == "neumann":
        laplacian[0, 0] += 1
        laplacian[-1, -1] += 1
    return laplacian


def polynomials(
    operator: Tensor, basis: str, order: int, a: float = 0.0, b: float = 0.0
) -> list[Tensor]:
    """P_0(T), .., P_K(T), each (L, L)."""
    eye = torch.eye(len(operator), dtype=operator.dtype)
    if basis == "monomial":
        return [torch.linalg.matrix_power(operator, k) for k in range(order + 1)]
    t = operator / 2 + eye
    if basis == "monomial_rescaled":
        return [torch.linalg.matrix_power(t, k) for k in range(order + 1)]
    matrices = [torch.zeros_like(t), eye]
    steps = jacobi_steps(order, a, b)
    for k in range(1, order + 1):
        if basis == "chebyshev":
            matrices.append(t if k == 1 else 2 * t @ matrices[-1] - matrices[-2])
        else:
            step = steps[k - 1]
            matrices.append(
                step.slope * t @ matrices[-1] + step.shift * matrices[-1] - step.back * matrices[-2]
            )
    return matrices[1:]


def sfpc(
    x: Tensor, coefficients: Tensor, operator: Tensor, basis: str, a: float = 0.0, b: float = 0.0
) -> Tensor:
    """p(T) x.

    Args:
        x: (L, D), one sample.
        coefficients: (K+1,) or (G, K+1), G groups of neighbouring channels.
        operator: T, (L, L).
        basis: monomial, monomial_rescaled, chebyshev or jacobi.
        a: Jacobi a.
        b: Jacobi b.
    """
    if coefficients.dim() == 2:
        grouped = coefficients
    else:
        grouped = coefficients[None]
    basis_matrices = polynomials(operator, basis, grouped.shape[1] - 1, a, b)
    columns = []
    for d in range(x.shape[1]):
        c = grouped[d * len(grouped) // x.shape[1]]
        filter_matrix = torch.einsum("k,kij->ij", c, torch.stack(basis_matrices))
        columns.append(filter_matrix @ x[:, d])
    return torch.stack(columns, 1)


def mixer(
    x: Tensor, weights: Mapping[str, Tensor], config: Config, keep: Tensor | None = None
) -> Tensor:
    """The whole mixer, (B, L, D) to (B, L, D), sample by sample; zero before the output
    projection at padding.
    """
    value = _project(x, weights, "value")
    outputs = []
    for index, tokens in enumerate(value):
        if keep is None:
            real = torch.ones(len(tokens), dtype=torch.bool)
        else:
            real = keep[index]
        outputs.append(_sample(tokens, real, weights, config))
    mixed = torch.stack(outputs)
    if config.gate != "none":
        gate = _project(x, weights, "gate")
        mixed = mixed * (
            torch.sigmoid(gate) if config.gate == "sigmoid" else gate * torch.sigmoid(gate)
        )
    return _project(mixed, weights, "out")


def _sample(tokens: Tensor, real: Tensor, weights: Mapping[str, Tensor], config: Config) -> Tensor:
    """p(T) of one sample: T of its real tokens, but for the shift and the circulant, which see
    zeros at padding.
    """
    if config.operator in ("laplacian", "cyclic"):
        where = real
    else:
        where = torch.ones_like(real)
    chosen = (tokens * real[:, None])[where]
    if not len(chosen):
        return tokens * 0
    if config.operator == "circulant":
        column = _column(weights, config, len(chosen))
    else:
        column = None
    operator = dense_operator(config.matrix, len(chosen), column)
    mixed = sfpc(
        chosen,
        weights["polynomial.coefficients"],
        operator,
        config.polynomials,
        config.jacobi_a,
        config.jacobi_b,
    )
    return torch.zeros_like(tokens).index_put((where.nonzero()[:, 0],), mixed) * real[:, None]


def _column(weights: Mapping[str, Tensor], config: Config, length: int) -> Tensor:
    """The circulant's first column: learned and held to a sum of magnitudes of 1, given, or a
    decay that sums to 1.
    """
    if config.first_column == "decay":
        decay = torch.exp(-torch.arange(length, dtype=torch.float64) / config.decay_length)
        return decay / decay.sum()
    if config.first_column == "learned":
        learned = weights["polynomial.first_column"][:length]
        return learned / learned.abs().sum().clamp_min(1.0)
    return torch.tensor(config.first_column[:length], dtype=torch.float64)


def _project(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    if f"{name}.weight" in weights:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    return x
