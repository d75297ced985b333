"""Kernels that a network makes of positions: k_t = MLP(z_t) exp(-decay t), with sines between its
layers.

A position is t = n / (N - 1) for token n of at most N, and its features are z = (t, cos, -sin of
frequencies of 2 pi n / N). So the longest sequence is part of what the weights mean.

Letters: B batch, L length, N longest sequence, D channels, W width of the network, M features.
Reference: Poli et al. 2023, Hyena, Eq. 7 and Section 3.3; constants as in the authors' code.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import ParameterRule
from subquad.plugin import Site
from subquad_plugins.hyena import FilterConfig
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.wavelet.atrous import last_tokens

FAST = 0.3
SLOW = 1.5
TARGET = 1e-2
"""Channels fall to TARGET between these shares of the longest sequence."""

FREE = ParameterRule(weight_decay=False)
"""For the network's weights, which the authors train without decay."""


class ImplicitFilter(nn.Module):
    """Kernels of D channels.

    Args:
        config: see `FilterConfig`.
        site: its longest sequence is N.
        channels: D.

    Raises:
        PluginError: the longest sequence is not known.
    """

    def __init__(self, config: FilterConfig, site: Site, channels: int):
        super().__init__()
        if not site.max_len:
            raise PluginError(
                "kernels made of positions need the length of the longest "
                "sequence, which is not known"
            )
        self.max_len = site.max_len
        self.channels = channels
        self.features = config.position_dim
        widths = [config.position_dim] + [config.filter_dim] * (config.filter_layers + 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.last = nn.Linear(config.filter_dim, channels, bias=False)
        self.frequency = nn.Parameter(torch.full((config.filter_dim,), config.sine_frequency))

    def places(self, length: int) -> tuple[Tensor, Tensor]:
        """Features of positions, (M, length), and how channels fall, (D, length), of at least fp32.

        Raises:
            PluginError: more tokens than N.
        """
        if length > self.max_len:
            raise PluginError(f"got {length} positions, and kernels were made for {self.max_len}")
        place = torch.arange(length, device=self.frequency.device, dtype=wide(self.frequency).dtype)
        t = place / max(self.max_len - 1, 1)
        bands = (self.features - 1) // 2
        rates = torch.linspace(1e-4, bands - 1, bands, device=t.device, dtype=t.dtype)
        angles = torch.outer(rates, place) * (2 * math.pi / self.max_len)
        decay = math.log(TARGET) * torch.linspace(
            1 / SLOW, 1 / FAST, self.channels, device=t.device, dtype=t.dtype
        )
        return torch.cat([t[None], angles.cos(), -angles.sin()]), torch.exp(torch.outer(decay, t))

    def kernel(self, length: int) -> Tensor:
        """(D, length), of at least fp32. Raises what `places` does."""
        return self.kernel_at(*self.places(length))

    def kernel_at(self, hidden: Tensor, falling: Tensor) -> Tensor:
        """(D, length), of what `places` returned, also of another filter like this one."""
        frequency = wide(self.frequency)[:, None]
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            scaled = frequency * torch.column_stack([wide(layer.weight), wide(layer.bias)])
            hidden = torch.sin(torch.addmm(scaled[:, -1:], scaled[:, :-1], hidden))
        return wide(self.last.weight) @ hidden * falling

    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """What `step` needs of x (B, L, D), real tokens first: the last N - 1, (B, N - 1, D),
        the newest last.
        """
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        return last_tokens(x, lengths, self.max_len - 1)


def real(x: Tensor, keep: Tensor | None) -> Tensor:
    """Zeros at padding."""
    if keep is None:
        return x
    return x.masked_fill(~keep[..., None], 0.0)


def biased(kernel: Tensor, bias: Tensor) -> Tensor:
    """The kernel (D, L) of a convolution that adds its input times bias, (D,)."""
    return kernel + F.pad(bias[:, None], (0, kernel.shape[1] - 1))


def linear_rows(layer: nn.Linear, rows: Tensor) -> Tensor:
    """`layer` of tokens whose channels come first, (B, D, L) to (B, E, L)."""
    return torch.baddbmm(layer.bias[:, None], layer.weight.expand(rows.shape[0], -1, -1), rows)


def long_conv_step(x: Tensor, past: Tensor, kernel: Tensor) -> Tensor:
    """The causal convolution at the next token: x (B, 1, D), past (B, N - 1, D), kernel (D, N)."""
    return torch.einsum("bnd,dn->bd", torch.cat([past, x], 1), kernel.flip(1))[:, None]


def grown(past: Tensor, x: Tensor) -> Tensor:
    """The newest tokens, (B, N - 1, D), one of which is x (B, 1, D)."""
    return torch.cat([past, x], 1)[:, 1:]
