"""S4: y_t = sum_j k_j x_{t-j} with k_j = C dA^j dB, for each channel by itself, A = L - p p^* and L diagonal.

    dA = (I - dt A / 2)^-1 (I + dt A / 2),  dB = dt (I - dt A / 2)^-1 B

States are pairs of conjugates z. As real numbers (Re z, Im z) they have the real matrix of L less 2 p p^T, so that all
is real and N x N. Powers of dA come by squaring: those up to T = sqrt(L) of dB, and those of dA^T of C.

Letters: B batch, L length, D channels, N state width, K kernels: 1, or 2 both ways.
Reference: Gu, Goel and Ré 2022, S4, Eq. 3 to 5 and Theorem 1. Departure: the authors get the kernel from its generating
function, whose C belongs to one length; here C is that of the recurrence, for any length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subquad.plugin import Site
from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4 import Config
from subquad_plugins.s4d.layer import StateSpaceMixer, hippo, log_time_steps


class S4(StateSpaceMixer):
    """State space model with HiPPO's matrix.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    SLOW = ("log_dt", "log_decay", "frequency", "low_rank", "enter")

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site, 2 * site.dim)
        poles, basis = hippo(config.state_dim)
        n = torch.arange(config.state_dim)
        low_rank, enter = (_in_basis(one, basis) for one in ((n + 0.5).sqrt(), (2 * n + 1.0).sqrt()))
        pairs, kernels = config.state_dim // 2, 1 if self.causal else 2
        self.log_dt = nn.Parameter(log_time_steps((site.dim,), config.dt_min, config.dt_max))
        self.log_decay = nn.Parameter((-poles.real).log().expand(site.dim, pairs).clone())
        self.frequency = nn.Parameter(poles.imag.expand(site.dim, pairs).clone())
        self.low_rank = nn.Parameter(low_rank.expand(site.dim, -1).clone())
        self.enter = nn.Parameter(enter.expand(site.dim, -1).clone())
        self.weight = nn.Parameter(torch.randn(kernels, site.dim, config.state_dim) * 0.5**0.5)

    def kernel(self, length: int) -> Tensor:
        """(K, D, length)."""
        step, enter = self._discrete()
        fine = 1 << math.ceil(math.log2(length) / 2)
        coarse = -(-length // fine)
        columns, jump = _powers(step, enter[..., None], fine)
        jump = jump @ jump if fine > 1 else jump
        rows, _ = _powers(jump.mT, wide(self.weight).permute(1, 2, 0), coarse)
        parts = 2 * rows.mT @ columns  # (D, coarse K, fine)
        return parts.unflatten(1, (coarse, -1)).movedim(2, 0).flatten(2)[..., :length]

    def mix(self, x: Tensor) -> Tensor:
        kernels = self.kernel(x.shape[1])
        if self.causal:
            return causal_conv(x, kernels[0])
        return bidirectional_conv(x, *kernels, first_backward_lag=1)

    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        step, enter = self._discrete()
        state = x.new_zeros(len(x), *enter.shape)
        for t in range(x.shape[1]):
            after = _next(x[:, t], state, step, enter)
            state = after if keep is None else torch.where(keep[:, t, None, None], after, state)
        return state

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = _next(x, state, *self._discrete())
        return 2 * (after * wide(self.weight[0])).sum(-1), after

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """dA, (D, N, N), and dB, (D, N)."""
        real, imaginary = (torch.diag_embed(one) for one in (-wide(self.log_decay).exp(), wide(self.frequency)))
        p, one = wide(self.low_rank)[..., None], torch.eye(self.low_rank.shape[1]).to(wide(self.low_rank))
        a = torch.cat([torch.cat([real, -imaginary], 2), torch.cat([imaginary, real], 2)], 1) - 2 * p * p.mT
        dt = wide(self.log_dt).exp()[:, None, None]
        solved = torch.linalg.solve(
            one - dt / 2 * a, torch.cat([one + dt / 2 * a, dt * wide(self.enter)[..., None]], 2)
        )
        return solved[..., :-1], solved[..., -1]


def _next(x: Tensor, state: Tensor, step: Tensor, enter: Tensor) -> Tensor:
    """The state (B, D, N) after x (B, D)."""
    return torch.einsum("dmn,bdn->bdm", step, state) + enter * x[..., None]


def _powers(step: Tensor, start: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """start, step start, step^2 start, .. side by side, `count` of them, and step^c, c a power of two.

    Args:
        step: (D, N, N).
        start: (D, N, K).
        count: where it is a power of two, c is half of it, or 1.
    """
    columns, done = start, 1
    while done < count:
        step = step if done == 1 else step @ step
        columns, done = torch.cat([columns, step @ columns], 2), 2 * done
    return columns[..., : count * start.shape[2]], step


def _in_basis(vector: Tensor, basis: Tensor) -> Tensor:
    """Real numbers (Re, Im) of (N,) in the eigenvectors' basis (N, N / 2): (N,)."""
    turned = basis.conj().T @ vector.to(basis.dtype)
    return torch.cat([turned.real, turned.imag])
