"""Hyena: v <- k * (x_i v) for each order, with long convolutions, then out = W_o (x_0 v).

x_0 .. x_{K-1} and v are projections, convolved over a few tokens. Each convolution adds its input
times a bias.

Letters: B batch, L length, D model width, K order.
Reference: Poli et al. 2023, Hyena, Definition 3.1; the bias as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.hyena import Config
from subquad_plugins.hyena.implicit_filter import (
    FREE,
    ImplicitFilter,
    biased,
    grown,
    linear_rows,
    long_conv_step,
    real,
)
from subquad_plugins.numerics.long_conv import causal_conv
from subquad_plugins.numerics.short_conv import ShortConv
from subquad_plugins.numerics.tensors import swapped, wide


class Hyena(TokenMixer):
    """Hyena operator.

    Args:
        config: see `Config`.
        site: its longest sequence is that of the kernels.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.order = config.order
        self.enter = nn.Linear(site.dim, (config.order + 1) * site.dim)
        self.conv = ShortConv((config.order + 1) * site.dim, config.conv_kernel)
        self.filter = ImplicitFilter(config, site, (config.order - 1) * site.dim)
        self.bias = nn.Parameter(torch.randn(config.order - 1, site.dim))
        self.out = nn.Linear(site.dim, site.dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        return self._mixed(x, keep)[0]

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return {f"filter.{name}": FREE for name, _ in self.filter.named_parameters()}

    @property
    def caches(self) -> bool:
        return True

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        out, past, entered = self._mixed(x, keep)
        return out, {
            "past": past,
            "entered": [self.filter.start(signal, keep) for signal in entered],
        }

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        out, past, entered = self._mixed(x[:, None], None, cache)
        after = [grown(*pair) for pair in zip(cache["entered"], entered, strict=True)]
        return out[:, 0], {"past": past, "entered": after}

    def _mixed(
        self, x: Tensor, keep: Tensor | None, cache: Cache = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Outputs, the short convolution's cache, and what entered each long one; one token
        where there is a cache.
        """
        if cache is None:
            length = x.shape[1]
        else:
            length = self.filter.max_len
        entering = wide(linear_rows(self.enter, swapped(x)).mT)
        projected, past = self.conv(entering, keep, None if cache is None else cache["past"])
        with torch.autocast(x.device.type, enabled=False):
            first, *gates, v = (part.mT for part in projected.mT.chunk(self.order + 1, 1))
            kernels = biased(self.filter.kernel(length), self.bias.flatten()).chunk(self.order - 1)
            entered = []
            for i, (gate, kernel) in enumerate(zip(reversed(gates), kernels, strict=True)):
                v = real(v * gate, keep)
                entered.append(v)
                if cache is None:
                    v = causal_conv(v, kernel)
                else:
                    v = long_conv_step(v, cache["entered"][i], kernel)
        return swapped(linear_rows(self.out, (first * v).to(x.dtype).mT)), past, entered
