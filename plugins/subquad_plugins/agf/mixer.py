"""AGF as a token mixer: projections, singular vectors, the filter and the two products of linear cost.

out = (U * F(sigma)) (V^T value) per head, in time O(L E^2). Singular vectors, polynomial and products are computed in
fp32 at least, also under autocast: softmax over thousands of tokens gives weights that fp16 cannot hold.

Letters: B batch, L length, D model width, H heads, E head width, K order.
Reference: Wi, Choi, Park 2025, Eq. 7-12. Departures: coefficients pass through tanh and the constant term may be held
at 1 (the authors' code; the paper is silent); the loss is normalised as in `ortho.distance_from_identity`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.agf import Config
from subquad_plugins.agf.filter import filtered_vectors
from subquad_plugins.agf.ortho import distance_from_identity, head_products
from subquad_plugins.numerics.jacobi import basis_steps, in_y, powers_of_y
from subquad_plugins.numerics.tensors import wide

MASKED_LOGIT = -1e9
"""Finite, as in the authors' LRA code, so that a sample without any real token stays finite."""


class PolynomialFilter(nn.Module):
    """Coefficients of the filter, and its product with the left singular vectors.

    Args:
        config: with `order` >= 1.
    """

    to_powers: Tensor | None

    def __init__(self, config: Config):
        super().__init__()
        self.fixed = config.fix_identity
        self.bounded = config.coeff_activation == "tanh"
        self.theta = nn.Parameter(torch.zeros(config.order + (not self.fixed)))
        steps = in_y(basis_steps(config.basis, config.order, config.jacobi_a, config.jacobi_b), config.sigma_map)
        matrix = powers_of_y(steps)
        self.steps = steps if matrix is None else None
        self.register_buffer("to_powers", None if matrix is None else torch.from_numpy(matrix), persistent=False)

    def coefficients(self, dtype: torch.dtype) -> Tensor:
        """c_0 .. c_K, (K+1,)."""
        learned = self.theta.to(dtype)
        learned = torch.tanh(learned) if self.bounded else learned
        return torch.cat([learned.new_ones(1), learned]) if self.fixed else learned

    def forward(self, vectors: Tensor, logits: Tensor) -> Tensor:
        """U * F(sigmoid(s)); both and the result (B, L, D)."""
        coefficients = self.coefficients(vectors.dtype)
        if self.to_powers is not None:
            coefficients = coefficients @ self.to_powers.to(coefficients.dtype)
        return filtered_vectors(vectors, logits, coefficients, self.steps)


class AGF(TokenMixer):
    """Attentive graph filter.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        self.num_heads = site.num_heads
        self.loss_weights = {"ortho": config.ortho_weight} if config.ortho_weight else {}
        self.u = nn.Linear(site.dim, site.dim)
        self.v = nn.Linear(site.dim, site.dim)
        self.value = nn.Linear(site.dim, site.dim)
        self.out = nn.Linear(site.dim, site.dim)
        # Only what takes part is built, so that every parameter has a gradient (DDP).
        has_filter = config.form == "svd" and config.order > 0
        self.sigma = nn.Linear(site.dim, site.dim) if has_filter else None
        self.filter = PolynomialFilter(config) if has_filter else None
        self.singular = nn.Parameter(_starting_values(config, site)) if _token_independent(config) else None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        left, right, value = self.u(x), self.v(x), self.value(x)
        sigma = None if self.sigma is None else self.sigma(x)
        with torch.autocast(x.device.type, enabled=False):
            left, right = self._vectors(wide(left), wide(right), keep)
            losses = self._losses(left, right)
            mixed = self._mix(left, right, wide(value), sigma)
        return MixerOutput(self.out(mixed.to(value.dtype)), losses)

    def _vectors(self, left: Tensor, right: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """U and V, (B, L, D) each: U activated along each head's features, V along the tokens."""
        keep = keep if self.config.mask_padding else None
        rho = self.config.vector_activation
        if rho == "softmax":
            right = right if keep is None else right.masked_fill(~keep[..., None], MASKED_LOGIT)
            return torch.softmax(left.unflatten(-1, (self.num_heads, -1)), -1).flatten(-2), torch.softmax(right, 1)
        activate = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "none": torch.clone}[rho]
        right = activate(right)
        return activate(left), right if keep is None else right.masked_fill(~keep[..., None], 0.0)

    def _losses(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        if not self.config.ortho_weight:
            return {}
        grams = (head_products(vectors, vectors, self.num_heads) for vectors in (left, right))
        return {"ortho": torch.stack([distance_from_identity(gram, self.config.ortho_norm) for gram in grams]).sum(0)}

    def _mix(self, left: Tensor, right: Tensor, value: Tensor, sigma: Tensor | None) -> Tensor:
        """(U * F) (V^T value), (B, L, D)."""
        summary = head_products(right, value, self.num_heads)
        if self.singular is not None:
            summary = summary * self._singular_values(summary.dtype)[..., None]
        if self.filter is not None and sigma is not None:
            left = self.filter(left, wide(sigma))
        heads = left.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return (heads @ summary).transpose(1, 2).flatten(2)

    def _singular_values(self, dtype: torch.dtype) -> Tensor:
        """(H, E) of form `svd_scalar`, or the one coefficient of order 0."""
        assert self.singular is not None
        values = self.singular.to(dtype)
        bounded = self.config.form == "svd" and self.config.coeff_activation == "tanh"
        return torch.tanh(values) if bounded else values


def _token_independent(config: Config) -> bool:
    """Whether there are learned singular values that do not depend on the token."""
    return config.form == "svd_scalar" or (config.form == "svd" and config.order == 0 and not config.fix_identity)


def _starting_values(config: Config, site: Site) -> Tensor:
    """Ones for `svd_scalar`; for order 0 the coefficient theta_0, which starts at 0 like every other."""
    return torch.ones(site.num_heads, site.head_dim) if config.form == "svd_scalar" else torch.zeros(1, 1)
