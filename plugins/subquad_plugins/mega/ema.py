"""Multi-dimensional damped exponential moving average (EMA), as kernel, convolution and recurrence.

Each channel is expanded to N numbers, each of them smoothed by its own EMA, and projected back to
one:

    h_t = q h_{t-1} + p beta x_t,   y_t = sum_n eta_n h_{t,n} / sqrt(N)
    p = sigmoid(w),  q = 1 - p sigmoid(d)
    so y_t = sum_{j >= 0} k_j x_{t-j} with k_j = sum_n p beta eta q^j / sqrt(N)

Both ways, a second kernel of this form runs from the future; the token itself is in both.

Letters: B batch, L length, D channels, N `ema_dim`, C kernels: D of them, or 2 D both ways, K
kernel length.
Reference: Ma et al. 2023, Mega, Eq. 2-4 (h: expansion beta, projection eta). The paper has no 1 /
sqrt(N) and bounds alpha and delta without saying how; both as in the authors' code, which calls w
`delta`, d `alpha` and eta `gamma`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad_plugins.numerics.exponentials import exponential_kernel, exponential_state
from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import wide


def ema_rates(weight_logit: Tensor, damping_logit: Tensor) -> tuple[Tensor, Tensor]:
    """p = sigmoid(w), the weight of the new value, and log q = log(1 - p sigmoid(d)); all (C, N).

    q is held above the smallest rounding error, so that its logarithm stays finite where p and
    sigmoid(d) round to 1.
    """
    weight = torch.sigmoid(weight_logit)
    forgotten = weight * torch.sigmoid(damping_logit)
    return weight, torch.log1p(-forgotten.clamp(max=1 - torch.finfo(weight.dtype).eps))


def ema_kernel(
    weight_logit: Tensor, damping_logit: Tensor, expansion: Tensor, projection: Tensor, length: int
) -> Tensor:
    """k_j = sum_n p beta eta q^j / sqrt(N) for j = 0 .. length - 1.

    Args:
        weight_logit: w, (C, N).
        damping_logit: d, (C, N).
        expansion: beta, (C, N).
        projection: eta, (C, N).
        length: K >= 1.

    Returns:
        (C, K).
    """
    weight, log_decay = ema_rates(weight_logit, damping_logit)
    return exponential_kernel(
        log_decay, weight * expansion * projection / math.sqrt(weight.shape[1]), length
    )


def ema_step(
    x: Tensor,
    state: Tensor,
    weight_logit: Tensor,
    damping_logit: Tensor,
    expansion: Tensor,
    projection: Tensor,
) -> tuple[Tensor, Tensor]:
    """One step of the recurrence.

    Args:
        x: (B, D), the next value.
        state: h_{t-1}, (B, D, N); zeros at the start.
        weight_logit: w, (D, N), and so `damping_logit` d, `expansion` beta, `projection` eta.

    Returns:
        y_t, (B, D), and h_t, (B, D, N).
    """
    weight, log_decay = ema_rates(weight_logit, damping_logit)
    state = state * log_decay.exp() + weight * expansion * x[..., None]
    return (state * projection).sum(-1) / math.sqrt(weight.shape[1]), state


class DampedEMA(nn.Module):
    """silu(EMA(x) + omega * x) along the sequence.

    Args:
        dim: D.
        ema_dim: N.
        bidirectional: whether a second EMA runs from the future.
        truncation: K, the kernel's largest length; 0: as long as the sequence.
    """

    def __init__(self, dim: int, ema_dim: int, *, bidirectional: bool, truncation: int = 0):
        super().__init__()
        self.bidirectional = bidirectional
        self.truncation = truncation
        if bidirectional:
            kernels = 2 * dim
        else:
            kernels = dim
        self.weight_logit = nn.Parameter(torch.randn(kernels, ema_dim) * 0.2)
        self.damping_logit = nn.Parameter(torch.randn(kernels, ema_dim) * 0.2)
        signs = 1.0 - 2.0 * (torch.arange(ema_dim) % 2)
        self.expansion = nn.Parameter(torch.randn(kernels, ema_dim) * 0.02 + signs)
        self.projection = nn.Parameter(torch.randn(kernels, ema_dim))
        self.skip = nn.Parameter(torch.randn(dim))

    def kernel(self, length: int) -> Tensor:
        """(C, K): kernels for a sequence of `length`; the second half of them runs from the
        future. fp32 at least.
        """
        if self.truncation:
            length = min(length, self.truncation)
        return ema_kernel(*self._coefficients(), length)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D) in fp32 at least; padding enters as zeros."""
        with torch.autocast(x.device.type, enabled=False):
            x = wide(x)
            if keep is None:
                real = x
            else:
                real = x.masked_fill(~keep[..., None], 0.0)
            kernel = self.kernel(x.shape[1])
            if self.bidirectional:
                past, future = kernel.chunk(2)
                averaged = bidirectional_conv(real, past, future, first_backward_lag=0)
            else:
                averaged = causal_conv(real, kernel)
            return F.silu(torch.addcmul(averaged, x, self.skip.to(x.dtype)))

    def start(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """h after the real tokens of x (B, L, D), real ones first: (B, D, N)."""
        with torch.autocast(x.device.type, enabled=False):
            weight_logit, damping_logit, expansion, _ = self._coefficients()
            weight, log_decay = ema_rates(weight_logit, damping_logit)
            return exponential_state(wide(x), log_decay, keep) * weight * expansion

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next output for x (B, D), and the state (B, D, N) after it."""
        with torch.autocast(x.device.type, enabled=False):
            x = wide(x)
            averaged, state = ema_step(x, state, *self._coefficients())
            return F.silu(averaged + x * self.skip.to(x.dtype)), state

    def _coefficients(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (
            wide(self.weight_logit),
            wide(self.damping_logit),
            wide(self.expansion),
            wide(self.projection),
        )
