"""AGF as a token mixer: projections, singular vectors, the filter and the two products of linear
cost.

out = (U * F(sigma)) (V^T value) per head, in time O(L E^2): `core.py`. What is summed is fp32 at
least, also under autocast.

Letters: B batch, L length, D model width, H heads, E head width, K order.
Reference: Wi, Choi, Park 2025, Eq. 7-12. Departures: coefficients pass through tanh and the
constant term may be held at 1 (the authors' code; the paper is silent); the loss is normalised as
in `ortho.distance_from_identity`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.agf import Config
from subquad_plugins.agf.core import Given, core
from subquad_plugins.agf.folded import Projections, Shape, layer
from subquad_plugins.agf.ortho import distance_from_identity
from subquad_plugins.numerics.jacobi import basis_steps, in_y, powers_of_y


class PolynomialFilter(nn.Module):
    """Coefficients of the filter.

    Args:
        config: with `order` >= 1.
    """

    to_powers: Tensor | None

    def __init__(self, config: Config):
        super().__init__()
        self.fixed = config.fix_identity
        self.bounded = config.coeff_activation == "tanh"
        self.theta = nn.Parameter(torch.zeros(config.order + (not self.fixed)))
        steps = in_y(
            basis_steps(config.basis, config.order, config.jacobi_a, config.jacobi_b),
            config.sigma_map,
        )
        matrix = powers_of_y(steps)
        self.steps = steps if matrix is None else None
        self.register_buffer(
            "to_powers", None if matrix is None else torch.from_numpy(matrix), persistent=False
        )

    def forward(self, dtype: torch.dtype) -> Tensor:
        """c_0 .. c_K, (K+1,): of the powers of y, or where `steps` is not None, of the basis
        these make.
        """
        learned = self.theta.to(dtype)
        if self.bounded:
            learned = torch.tanh(learned)
        if self.fixed:
            coefficients = torch.cat([learned.new_ones(1), learned])
        else:
            coefficients = learned
        if self.to_powers is None:
            return coefficients
        return coefficients @ self.to_powers.to(dtype)


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
        if config.ortho_weight:
            self.loss_weights = {"ortho": config.ortho_weight}
        else:
            self.loss_weights = {}
        self.u = nn.Linear(site.dim, site.dim)
        self.v = nn.Linear(site.dim, site.dim)
        self.value = nn.Linear(site.dim, site.dim)
        self.out = nn.Linear(site.dim, site.dim)
        # Only what takes part is built, so that every parameter has a gradient (DDP).
        has_filter = config.form == "svd" and config.order > 0
        if has_filter:
            self.sigma = nn.Linear(site.dim, site.dim)
            self.filter = PolynomialFilter(config)
        else:
            self.sigma = None
            self.filter = None
        if _token_independent(config):
            self.singular = nn.Parameter(_starting_values(config, site))
        else:
            self.singular = None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        keep = keep if self.config.mask_padding else None
        if self._can_be_whole(x):
            return self._whole(x, keep)
        return self._composed(x, keep)

    def _inward(self) -> list[nn.Linear]:
        """The projections of x, in the order of `core.Given.projected`."""
        return [linear for linear in (self.u, self.sigma, self.v, self.value) if linear is not None]

    def _can_be_whole(self, x: Tensor) -> bool:
        """Whether one operation is quicker."""
        if (
            self.filter is None
            or self.config.vector_activation != "softmax"
            or x.device.type != "cpu"
        ):
            return False
        exact = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
        long = x.shape[1] >= x.shape[2] and bool(x.numel())
        return (
            _unhooked(*self._inward(), self.out)
            and exact
            and long
            and x.dtype == self.out.weight.dtype
            and not torch.compiler.is_compiling()
        )

    def _whole(self, x: Tensor, keep: Tensor | None) -> MixerOutput:
        token = [
            torch.cat([getattr(self.u, name), getattr(self.sigma, name)])
            for name in ("weight", "bias")
        ]
        others = [
            getattr(linear, name)
            for linear in (self.v, self.value, self.out)
            for name in ("weight", "bias")
        ]
        filtered: Any = self.filter
        shape = Shape(filtered.steps, keep, self.num_heads, bool(self.config.ortho_weight))
        out, *products = layer(x, Projections(*token, *others), filtered(x.dtype), shape)
        return MixerOutput(out, self._losses(*products) if shape.grams else {})

    def _composed(self, x: Tensor, keep: Tensor | None) -> MixerOutput:
        """By way of the core, in its best implementation; `keep` (B, L) says what V is made of."""
        projected = self._projected(x)
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(projected.dtype, torch.float32)
            if self.filter is None:
                coefficients = None
                steps = None
            else:
                coefficients = self.filter(dtype)
                steps = self.filter.steps
            activation = self.config.vector_activation
            grams = bool(self.config.ortho_weight)
            singular = self._singular_values(dtype)
            given = Given(
                projected, coefficients, steps, keep, self.num_heads, activation, singular, grams
            )
            mixed, *products = core(given)
            if grams:
                losses = self._losses(*products)
            else:
                losses = {}
        return MixerOutput(self.out(mixed), losses)

    def _projected(self, x: Tensor) -> Tensor:
        """All projections of x side by side, (B, L, 4 D), or 3 D without a filter."""
        linears = self._inward()
        # One product reads and casts x once and adds no gradients of x: of N = B L D numbers it
        # moves 60 N bytes less in fp32, 84 N under autocast. Joining the weights moves 64 D^2.
        joined = (
            not torch.compiler.is_compiling()
            and x.shape[:-1].numel() >= x.shape[-1]
            and _unhooked(*linears)
        )
        if not joined:
            return torch.cat([linear(x) for linear in linears], -1)
        weight = torch.cat([linear.weight for linear in linears])
        return F.linear(x, weight, torch.cat([linear.bias for linear in linears]))

    def _losses(self, *products: Any) -> dict[str, Tensor]:
        """Of U^T U and V^T V, (B, H, E, E): (B,)."""
        return {
            "ortho": torch.stack(
                [distance_from_identity(product, self.config.ortho_norm) for product in products]
            ).sum(0)
        }

    def _singular_values(self, dtype: torch.dtype) -> Tensor | None:
        """(H, E) of form `svd_scalar`, or the one coefficient of order 0; None where there is
        neither.
        """
        if self.singular is None:
            return None
        values = self.singular.to(dtype)
        bounded = self.config.form == "svd" and self.config.coeff_activation == "tanh"
        if bounded:
            return torch.tanh(values)
        return values


def _unhooked(*linears: nn.Module) -> bool:
    """Whether nobody has replaced a projection or looks at what it gives."""
    return all(
        type(linear) is nn.Linear
        and linear.bias is not None
        and not linear._forward_hooks
        and not linear._forward_pre_hooks
        and not linear._backward_hooks
        for linear in linears
    )


def _token_independent(config: Config) -> bool:
    """Whether there are learned singular values that do not depend on the token."""
    return config.form == "svd_scalar" or (
        config.form == "svd" and config.order == 0 and not config.fix_identity
    )


def _starting_values(config: Config, site: Site) -> Tensor:
    """Ones for `svd_scalar`; for order 0 the coefficient theta_0, which starts at 0 like every
    other.
    """
    if config.form == "svd_scalar":
        return torch.ones(site.num_heads, site.head_dim)
    return torch.zeros(1, 1)
