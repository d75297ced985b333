"""S4: y_t = sum_j k_j x_{t-j} with k_j = C dA^j dB, for each channel by itself, A = L - p p^* and L
diagonal.

    dA = (I - dt A / 2)^-1 (I + dt A / 2),  dB = dt (I - dt A / 2)^-1 B

States are pairs of conjugates z, of which one is kept. By the formula of Sherman and Morrison dA =
Delta - u w^* with Delta diagonal, and dA^m = Delta^m - sum_{i<m} dA^i u w^* Delta^(m-1-i), so that
powers up to T of u and dB come by doubling m. C takes the steps of dA^T, a real N x N matrix, one
after another.

Letters: B batch, L length, D channels, N state width, K kernels: 1, or 2 both ways.
Reference: Gu, Goel and Ré 2022, S4, Eq. 3 to 5 and Theorem 1. Departure: the authors get the kernel
from its generating function, whose C belongs to one length; here C is that of the recurrence, for
any length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from subquad.plugin import Site
from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4 import Config
from subquad_plugins.s4d.layer import StateSpaceMixer, hippo, log_time_steps

FINE = 64
"""T, a power of two. It does not depend on L, so that all work but the FFT's is linear in L."""


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
        low_rank = _in_basis((n + 0.5).sqrt(), basis)
        enter = _in_basis((2 * n + 1.0).sqrt(), basis)
        pairs = config.state_dim // 2
        kernels = 1 if self.causal else 2
        self.log_dt = nn.Parameter(log_time_steps((site.dim,), config.dt_min, config.dt_max))
        self.log_decay = nn.Parameter((-poles.real).log().expand(site.dim, pairs).clone())
        self.frequency = nn.Parameter(poles.imag.expand(site.dim, pairs).clone())
        self.low_rank = nn.Parameter(low_rank.expand(site.dim, -1).clone())
        self.enter = nn.Parameter(enter.expand(site.dim, -1).clone())
        self.weight = nn.Parameter(torch.randn(kernels, site.dim, config.state_dim) * 0.5**0.5)

    def kernel(self, length: int) -> Tensor:
        """(K, D, length)."""
        turn, low, past, enter = (tensor[:, None] for tensor in self._discrete())
        # now of dA^i u and dA^i dB those for i < m, and past: w^* Delta^(m-1-i)
        for _ in range(FINE.bit_length() - 1):
            low, enter = (
                torch.cat(
                    [vector, turn * vector - _pairs(_real(vector) @ _real(past).mT @ _real(low))], 1
                )
                for vector in (low, enter)
            )
            past = torch.cat([past * turn.conj(), past], 1)
            turn = turn * turn
        jump = _dense(turn[:, 0]) - _real(low).mT @ _real(past)
        rows: Any = _Orbit.apply(
            _real(_weights(self.weight)).transpose(0, 1), jump, -(-length // FINE)
        )
        parts = 2 * rows.flatten(1, 2) @ _real(enter).mT  # (D, K coarse, fine)
        return parts.unflatten(1, (len(self.weight), -1)).transpose(0, 1).flatten(2)[..., :length]

    def mix(self, x: Tensor) -> Tensor:
        kernels = self.kernel(x.shape[1])
        if self.causal:
            return causal_conv(x, kernels[0])
        return bidirectional_conv(x, *kernels, first_backward_lag=1)

    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        discrete = self._discrete()
        state = discrete[0].new_zeros(len(x), *discrete[0].shape)
        for t in range(x.shape[1]):
            after = _next(x[:, t], state, *discrete)
            if keep is None:
                state = after
            else:
                state = torch.where(keep[:, t, None, None], after, state)
        return torch.view_as_real(state)

    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = _next(x, torch.view_as_complex(state), *self._discrete())
        return 2 * _inner(_weights(self.weight)[0], after)[..., 0], torch.view_as_real(after)

    def _discrete(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Delta, u and w of dA = Delta - u w^*, and dB: (D, N / 2) each, by the formula of
        Sherman and Morrison.
        """
        dt = wide(self.log_dt).exp()[:, None]
        a = torch.complex(-wide(self.log_decay).exp(), wide(self.frequency))
        p = _weights(self.low_rank)
        b = _weights(self.enter)
        near = 1 / (1 - dt / 2 * a)
        low = near * p
        past = near.conj() * p * (2 * dt / (1 + dt * _inner(p, low)))
        turn = (1 + dt / 2 * a) * near
        enter = dt * near * b - low * (dt / 2 * _inner(past, b))
        return turn, low, past, enter


def _next(
    x: Tensor, state: Tensor, turn: Tensor, low: Tensor, past: Tensor, enter: Tensor
) -> Tensor:
    """The state (B, D, N / 2) after x (B, D)."""
    return turn * state - low * _inner(past, state) + enter * x[..., None]


class _Orbit(torch.autograd.Function):
    """rows step^i for i < count, one after another: (D, K, N) and (D, N, N) to (D, K, count, N)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, step: Tensor, count: int) -> Tensor:
        every = [rows]
        for _ in range(count - 1):
            every.append(every[-1] @ step)
        orbit = torch.stack(every, 2)
        ctx.save_for_backward(orbit, step)
        return orbit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        orbit, step = ctx.saved_tensors
        # few rows times a transposed matrix would take five times as long
        back = step.mT.contiguous()
        every = list(grads[0].unbind(2))
        for i in reversed(range(1, len(every))):
            every[i - 1] = torch.baddbmm(every[i - 1], every[i], back)
        before, after = (
            x.flatten(1, 2) for x in (orbit[:, :, :-1], torch.stack(every, 2)[:, :, 1:])
        )
        return every[0], before.mT @ after, None


def _weights(x: Tensor) -> Tensor:
    """A parameter (.., N), all real parts before all imaginary ones, as complex numbers."""
    return torch.complex(*wide(x).chunk(2, -1))


def _real(x: Tensor) -> Tensor:
    """(.., N / 2) to (.., N): the real and the imaginary part of each beside each other."""
    return torch.view_as_real(x).flatten(-2)


def _pairs(x: Tensor) -> Tensor:
    """The reverse of `_real`."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _inner(x: Tensor, y: Tensor) -> Tensor:
    """Re x^* y, (.., 1)."""
    return (x.conj() * y).real.sum(-1, keepdim=True)


def _dense(x: Tensor) -> Tensor:
    """The real matrix (D, N, N) that multiplies pairs by x (D, N / 2)."""
    blocks = torch.stack([x.real, -x.imag, x.imag, x.real], 1).unflatten(1, (2, 2))
    pairs = torch.diag_embed(blocks).permute(0, 3, 1, 4, 2)
    return pairs.reshape(len(x), 2 * x.shape[1], -1)


def _in_basis(vector: Tensor, basis: Tensor) -> Tensor:
    """Real numbers (Re, Im) of (N,) in the eigenvectors' basis (N, N / 2): (N,)."""
    turned = basis.conj().T @ vector.to(basis.dtype)
    return torch.cat([turned.real, turned.imag])
