"""S5: h_t = exp(dt L) h_{t-1} + (exp(dt L) - 1) / L B x_t, y_t = 2 Re C h_t, with L diagonal and
complex.

L = -exp(a) + i w. Both ways, the same states also run from the end, with a C of their own. Scans
are in fp32 at least.

Letters: B batch, L length, D channels, P pairs of conjugate states, K directions.
Reference: Smith et al. 2023, S5, Eq. 4 to 6, Section 3.3 and Appendix B.1, D.5 (directions).
Departure: real parts of L are below 0 by construction, where the authors' code leaves them free or
clips them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.plugin import Site
from subquad_plugins.numerics.scan import scan
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4d.layer import StateSpaceMixer, hippo, log_time_steps
from subquad_plugins.s5 import Config


class S5(StateSpaceMixer):
    """State space model of all channels together.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    SLOW = ("log_dt", "log_decay", "frequency", "enter")

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site, site.dim)
        poles, basis = hippo(config.state_dim // config.blocks)
        pairs = config.state_dim // 2
        directions = 1 if self.causal else 2
        self.log_dt = nn.Parameter(log_time_steps((pairs,), config.dt_min, config.dt_max))
        self.log_decay = nn.Parameter((-poles.real).log().repeat(config.blocks))
        self.frequency = nn.Parameter(poles.imag.repeat(config.blocks))
        self.enter = nn.Parameter(
            _in_basis(torch.randn(config.state_dim, site.dim) * site.dim**-0.5, basis)
        )
        self.leave = nn.Parameter(
            torch.randn(directions, site.dim, pairs, 2) * config.state_dim**-0.5
        )

    def gate(self, hidden: Tensor) -> Tensor:
        """The paper's weighted sigmoid gated unit."""
        return hidden * torch.sigmoid(self.out(hidden))

    def mix(self, x: Tensor) -> Tensor:
        forwards = self._left(self._states(x), 0)
        if self.causal:
            return forwards
        return forwards + self._left(self._states(x.flip(1)).flip(1), 1)

    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        states = torch.view_as_real(self._states(x))
        if keep is None:
            last = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            last = keep.sum(1)
        state = states[torch.arange(len(x), device=x.device), (last - 1).clamp_min(0)]
        return state.masked_fill((last == 0)[:, None, None], 0.0)

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        decay, weights = self._discrete()
        after = decay * torch.view_as_complex(state) + _complex_linear(x, weights)
        return self._left(after, 0), torch.view_as_real(after)

    def _states(self, x: Tensor) -> Tensor:
        """h of (B, L, D), (B, L, P) complex."""
        decay, weights = self._discrete()
        return scan(decay, _complex_linear(x, weights))

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """exp(dt L), (P,), and (exp(dt L) - 1) / L B, (P, D)."""
        poles = torch.complex(-wide(self.log_decay).exp(), wide(self.frequency))
        exponent = wide(self.log_dt).exp() * poles
        return exponent.exp(), (torch.expm1(exponent) / poles)[:, None] * torch.view_as_complex(
            wide(self.enter)
        )

    def _left(self, states: Tensor, direction: int) -> Tensor:
        """2 Re C h, (.., D), as one product of real numbers."""
        real, imaginary = wide(self.leave[direction]).unbind(-1)
        return F.linear(
            torch.view_as_real(states).flatten(-2),
            2 * torch.stack([real, -imaginary], -1).flatten(1),
        )


def _complex_linear(x: Tensor, weights: Tensor) -> Tensor:
    """Real x (.., D) times complex weights (P, D), as one product of real numbers."""
    return torch.view_as_complex(
        F.linear(x, torch.view_as_real(weights).mT.flatten(0, 1)).unflatten(-1, (-1, 2))
    )


def _in_basis(weights: Tensor, basis: Tensor) -> Tensor:
    """B (N, D), a block of states after the other, in the eigenvectors' basis: (P, D, 2)."""
    blocks = weights.to(basis.dtype).unflatten(0, (-1, len(basis)))
    return torch.view_as_real((basis.conj().T @ blocks).flatten(0, 1))
