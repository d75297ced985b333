"""AGF as the authors' code computes it, step by step from the formulas: what its speed is compared
with. Not used else.

Four projections, heads brought forward, both softmaxes, the Jacobi recurrence on whole tensors, two
products, and the orthogonality loss from products of the singular vectors. Same weights, outputs
and losses as `mixer.AGF`.

Letters: B batch, L length, D model width, H heads, E head width, K order.
Reference: Wi, Choi, Park 2025, Eq. 7-12, Appendix F; tanh, fixed constant term, masks and loss as
in the authors' code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.agf import Config
from subquad_plugins.numerics.jacobi import basis_steps


class PublishedAGF(TokenMixer):
    """The published layer.

    Args:
        config: see `Config`; `form` svd with an order above 0, vectors by softmax, padding left
            out.
        site: where it stands.

    Raises:
        PluginError: other forms were not published so.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        if config.form != "svd" or config.order == 0 or config.vector_activation != "softmax":
            raise PluginError(
                "agf: the published form has form svd, an order above 0 and "
                "vector_activation softmax"
            )
        self.config = config
        self.num_heads = site.num_heads
        if config.ortho_weight:
            self.loss_weights = {"ortho": config.ortho_weight}
        else:
            self.loss_weights = {}
        self.u, self.v, self.sigma, self.value, self.out = (
            nn.Linear(site.dim, site.dim) for _ in range(5)
        )
        self.filter = nn.ParameterDict(
            {"theta": torch.zeros(config.order + (not config.fix_identity))}
        )

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        if keep is None or not self.config.mask_padding:
            real = x.new_ones(x.shape[:2])
        else:
            real = keep.to(x.dtype)
        u, v, s, value = (
            self._split(project(x)) for project in (self.u, self.v, self.sigma, self.value)
        )
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(u.dtype, torch.float32)
            u, v, s, value = (tensor.to(dtype) for tensor in (u, v, s, value))
            left = torch.softmax(u, -1)
            right = torch.softmax(v - 1e9 * (1 - real[:, None, :, None].to(dtype)), -2)
            mixed = (left * self._filtered(torch.sigmoid(s))) @ (right.mT @ value)
            if self.config.ortho_weight:
                losses = {"ortho": self._gap(left) + self._gap(right)}
            else:
                losses = {}
        return MixerOutput(self.out(mixed.transpose(1, 2).flatten(2).to(x.dtype)), losses)

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, E)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _filtered(self, sigma: Tensor) -> Tensor:
        """c_0 P_0 + .. + c_K P_K at every value, by the three-term recurrence."""
        config = self.config
        theta = self.filter["theta"].to(sigma.dtype)
        if config.coeff_activation == "tanh":
            learned = torch.tanh(theta)
        else:
            learned = theta
        if config.fix_identity:
            c = torch.cat([learned.new_ones(1), learned])
        else:
            c = learned
        if config.sigma_map == "unit":
            x = sigma
        else:
            x = 2 * sigma - 1
        before = torch.zeros_like(x)
        last = torch.ones_like(x)
        total = c[0] * last
        for k, step in enumerate(
            basis_steps(config.basis, config.order, config.jacobi_a, config.jacobi_b), 1
        ):
            grown = (step.slope * x + step.shift) * last - (step.back * before if k > 1 else 0)
            before = last
            last = grown
            total = total + c[k] * last
        return total

    def _gap(self, vectors: Tensor) -> Tensor:
        """(B,): distance of the vectors' products (B, H, E, E) from I, over E^2, mean over
        heads.
        """
        width = vectors.shape[-1]
        gap = vectors.mT @ vectors - torch.eye(width, dtype=vectors.dtype, device=vectors.device)
        if self.config.ortho_norm == "l1":
            size = gap.abs().sum((2, 3))
        else:
            size = gap.square().sum((2, 3)).sqrt()
        return size.mean(1) / width**2
