"""AGF written as the paper states it, with the L x L filter matrix: the oracle that the fast path
is tested against.

Letters: B batch, L length, D model width, H heads, E head width, K order.
Reference: Wi, Choi, Park 2025, Eq. 6-12, Appendix F; tanh, fixed constant term and loss as in the
authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from subquad_plugins.agf import Config
from subquad_plugins.numerics.jacobi import basis_steps

Project = Callable[[str], Tensor]


def agf(
    x: Tensor,
    weights: Mapping[str, Tensor],
    config: Config,
    num_heads: int,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The mixed tokens and the orthogonality loss.

    Args:
        x: (B, L, D).
        weights: the mixer's state: `u.weight`, `u.bias`, ..., `filter.theta` or `singular`.
        config: the mixer's parameters.
        num_heads: H.
        keep: (B, L) bool, True = real token.

    Returns:
        (B, L, D) and (B,).
    """

    def project(name: str) -> Tensor:
        y = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return y.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    rho = config.vector_activation
    if keep is None or not config.mask_padding:
        hidden = torch.tensor(False)
    else:
        hidden = ~keep[:, None, :, None]
    left = _rho(project("u"), rho, dim=3)
    right = _rho(project("v").masked_fill(hidden, -1e9), rho, dim=2)
    if rho != "softmax":
        right = right.masked_fill(hidden, 0.0)
    values = _singular_values(project, weights, config, left)
    attention = (left * values) @ right.transpose(2, 3)  # H = U Sigma V^T, (B, H, L, L)
    mixed = (attention @ project("value")).transpose(1, 2).flatten(2)
    loss = _distance(left, config.ortho_norm) + _distance(right, config.ortho_norm)
    return mixed @ weights["out.weight"].T + weights["out.bias"], loss


def _rho(logits: Tensor, name: str, dim: int) -> Tensor:
    if name == "softmax":
        return torch.softmax(logits, dim)
    return {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "none": torch.clone}[name](logits)


def _singular_values(
    project: Project, weights: Mapping[str, Tensor], config: Config, left: Tensor
) -> Tensor:
    """What the filter makes of each token's singular values, (B, H, L, E)."""
    if config.form != "svd" or config.order == 0:
        learned = weights.get("singular", torch.ones(1, 1, dtype=left.dtype))
        bounded = (
            config.form == "svd" and "singular" in weights and config.coeff_activation == "tanh"
        )
        return (learned.tanh() if bounded else learned)[..., None, :].expand_as(left)
    theta = weights["filter.theta"]
    if config.coeff_activation == "tanh":
        c = theta.tanh()
    else:
        c = theta
    if config.fix_identity:
        c = torch.cat([c.new_ones(1), c])
    sigma = torch.sigmoid(project("sigma"))
    if config.sigma_map == "unit":
        x = sigma
    else:
        x = 2 * sigma - 1
    basis = [torch.zeros_like(x), torch.ones_like(x)]
    for step in basis_steps(config.basis, config.order, config.jacobi_a, config.jacobi_b):
        line = step.slope * x + step.shift
        basis.append(line * basis[-1] - step.back * basis[-2])
    return torch.einsum("k,kbhle->bhle", c, torch.stack(basis[1:]))


def _distance(vectors: Tensor, norm: str) -> Tensor:
    """(B,): entrywise norm of vectors^T vectors - I over E^2, mean over heads."""
    gap = vectors.transpose(2, 3) @ vectors - torch.eye(vectors.shape[-1], dtype=vectors.dtype)
    if norm == "l1":
        size = gap.abs().sum((2, 3))
    else:
        size = gap.square().sum((2, 3)).sqrt()
    return size.mean(1) / vectors.shape[-1] ** 2
