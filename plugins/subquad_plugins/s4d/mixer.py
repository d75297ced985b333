"""S4D: y_t = sum_j k_j x_{t-j} with k_j = 2 Re sum_n C_n dB_n dA_n^j, for each channel by itself.

    zoh:      dA = exp(dt A),                    dB = (dA - 1) / A
    bilinear: dA = (1 + dt A / 2) / (1 - dt A / 2),  dB = dt / (1 - dt A / 2)

A = -exp(a) + i w. B is 1: C stands for both. Both ways, a second kernel with its own C acts from
the next token on.

Letters: B batch, L length, D channels, N pairs of conjugate states, K kernels: 1, or 2 both ways.
Reference: Gu et al. 2022, S4D, Eq. 3, 6, 9 and 10; two kernels and the gated linear unit as in the
authors' code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subquad.plugin import Site
from subquad_plugins.numerics.exponentials import exponential_kernel, exponential_state
from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4d import Config
from subquad_plugins.s4d.layer import StateSpaceMixer, log_time_steps


class S4D(StateSpaceMixer):
    """Diagonal state space model.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    SLOW = ("log_dt", "log_decay", "frequency")

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site, 2 * site.dim)
        self.discretization = config.discretization
        pairs = config.state_dim // 2
        kernels = 1 if self.causal else 2
        self.log_dt = nn.Parameter(log_time_steps((site.dim,), config.dt_min, config.dt_max))
        self.log_decay = nn.Parameter(torch.full((site.dim, pairs), math.log(0.5)))
        self.frequency = nn.Parameter(_frequencies(config).expand(site.dim, pairs).clone())
        self.weight = nn.Parameter(torch.randn(kernels, site.dim, pairs, 2) * 0.5**0.5)

    def kernel(self, length: int) -> Tensor:
        """(K, D, length)."""
        return 2 * exponential_kernel(*self._discrete(), length)

    def mix(self, x: Tensor) -> Tensor:
        kernels = self.kernel(x.shape[1])
        if len(kernels) == 1:
            return causal_conv(x, kernels[0])
        return bidirectional_conv(x, *kernels, first_backward_lag=1)

    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        return torch.view_as_real(exponential_state(x, self._discrete()[0], keep))

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        rates, scale = self._discrete()
        after = torch.view_as_complex(state) * rates.exp() + x[..., None]
        return 2 * (after * scale[0]).sum(-1).real, torch.view_as_real(after)

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """log dA, (D, N), and C dB, (K, D, N)."""
        dt = wide(self.log_dt).exp()[:, None]
        a = torch.complex(-wide(self.log_decay).exp(), wide(self.frequency))
        weight = torch.view_as_complex(wide(self.weight))
        if self.discretization == "zoh":
            return dt * a, weight * torch.expm1(dt * a) / a
        ahead = 1 + dt * a / 2
        behind = 1 - dt * a / 2
        return torch.log(ahead / behind), weight * dt / behind


def _frequencies(config: Config) -> Tensor:
    """The imaginary parts of A at the start, (N,)."""
    n = torch.arange(config.state_dim // 2)
    width = config.state_dim
    if config.start == "lin":
        return math.pi * n
    return width / math.pi * (width / (2 * n + 1) - 1)
