"""Monarch Mixer along the sequence: out = W_o (x_2 (k * (x_1 v)) + k' * x), with long convolutions.

x_1, x_2 and v are projections, convolved over a few tokens. Both ways each convolution has a second
kernel, from the next token on; a convolution adds its input times a bias. The products with Monarch
matrices are those of an FFT.

Letters: B batch, L length, D model width.
Reference: Fu et al. 2023, Monarch Mixer, Section 4 and Algorithm 1; the second convolution and the
short one, causal also in a mixer of both directions, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.hyena.implicit_filter import (
    FREE,
    ImplicitFilter,
    biased,
    grown,
    linear_rows,
    long_conv_step,
    real,
)
from subquad_plugins.m2 import Config
from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.short_conv import ShortConv
from subquad_plugins.numerics.tensors import swapped, wide


class LongConv(nn.Module):
    """y = k * x + bias x, one way or both.

    Args:
        config: see `Config`.
        site: causal or not; its longest sequence is that of the kernels.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.past = ImplicitFilter(config, site, site.dim)
        if site.causal:
            self.future = None
        else:
            self.future = ImplicitFilter(config, site, site.dim)
        self.bias = nn.Parameter(torch.randn(site.dim))

    def forward(
        self, x: Tensor, places: tuple[Tensor, Tensor], before: Tensor | None = None
    ) -> Tensor:
        """(B, L, D), zeros at padding; or (B, 1, D) after the tokens `before`. `places` are
        those of the kernels.
        """
        kernel = biased(self.past.kernel_at(*places), self.bias)
        if before is not None:
            return long_conv_step(x, before, kernel)
        if self.future is None:
            return causal_conv(x, kernel)
        return bidirectional_conv(x, kernel, self.future.kernel_at(*places), first_backward_lag=1)


class M2(TokenMixer):
    """Monarch Mixer's sequence mixer.

    Args:
        config: see `Config`.
        site: see `LongConv`.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.causal = site.causal
        self.enter = nn.Linear(site.dim, 3 * site.dim)
        self.conv = ShortConv(3 * site.dim, config.conv_kernel)
        self.gated = LongConv(config, site)
        if config.residual:
            self.residual = LongConv(config, site)
        else:
            self.residual = None
        self.out = nn.Linear(site.dim, site.dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        return self._mixed(x, keep)[0]

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        filters = (
            name for name, _ in self.named_parameters() if ".past." in name or ".future." in name
        )
        return dict.fromkeys(filters, FREE)

    @property
    def caches(self) -> bool:
        return self.causal

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        out, past, entered = self._mixed(x, keep)
        return out, {
            "past": past,
            "entered": [self.gated.past.start(signal, keep) for signal in entered],
        }

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        out, past, entered = self._mixed(x[:, None], None, cache)
        after = [grown(*pair) for pair in zip(cache["entered"], entered, strict=False)]
        return out[:, 0], {"past": past, "entered": after}

    def _mixed(
        self, x: Tensor, keep: Tensor | None, cache: Cache = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """As `Hyena`'s."""
        rows = swapped(x)
        entering = wide(linear_rows(self.enter, rows).mT)
        projected, past = self.conv(entering, keep, None if cache is None else cache["past"])
        with torch.autocast(x.device.type, enabled=False):
            inner, outer, v = (part.mT for part in projected.mT.chunk(3, 1))
            entered = [real(inner * v, keep), real(wide(rows.mT), keep)]
            if cache is None:
                before = [None, None]
            else:
                before = cache["entered"]
            places = self.gated.past.places(
                x.shape[1] if cache is None else self.gated.past.max_len
            )
            y = outer * self.gated(entered[0], places, before[0])
            if self.residual is not None:
                y = y + self.residual(entered[1], places, before[1])
        return swapped(linear_rows(self.out, y.to(x.dtype).mT)), past, entered
