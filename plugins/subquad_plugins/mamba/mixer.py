"""Mamba: h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t, y_t = C_t h_t + D u_t, for each channel by
itself.

    [u | z] = x W_in;  u = silu(conv(u));  [r | B | C] = u W_x;  dt = softplus(r W_dt + b);  out =
    (y silu(z)) W_out

A = -exp(a). With zoh, dt B is (exp(dt A) - 1) / A B. A token of padding has dt = 0 and leaves the
state alone. Steps, exponents and states are in fp32 at least.

Letters: B batch, L length, D model width, E channels, N state width, R rank.
Reference: Gu and Dao 2023, Mamba, Eq. 2 to 4, Algorithm 2 and Section 3.4. Departure of the
authors' code, and so of
euler: the paper's Eq. 4 has the zero-order hold for B too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.mamba import Config
from subquad_plugins.numerics.selective_scan import selective_scan
from subquad_plugins.numerics.short_conv import ShortConv
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4d.layer import log_time_steps


class Mamba(TokenMixer):
    """Selective state space model.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.zoh = config.discretization == "zoh"
        channels = config.expand * site.dim
        states = config.state_dim
        rank = config.dt_rank or -(-site.dim // 16)
        self.sizes = (rank, states, states)
        self.enter = nn.Linear(site.dim, 2 * channels, bias=False)
        self.conv = ShortConv(channels, config.conv_kernel, silu=True)
        self.select = nn.Linear(channels, sum(self.sizes), bias=False)
        self.dt = nn.Linear(rank, channels)
        self.log_decay = nn.Parameter(
            torch.arange(1.0, states + 1).log().expand(channels, states).clone()
        )
        self.skip = nn.Parameter(torch.ones(channels))
        self.out = nn.Linear(channels, site.dim, bias=False)
        nn.init.uniform_(self.dt.weight, -(rank**-0.5), rank**-0.5)
        steps = log_time_steps((channels,), config.dt_min, config.dt_max).exp()
        with torch.no_grad():
            # softplus of this is the step
            self.dt.bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        return self.prefill(x, keep=keep)[0]

    @property
    def caches(self) -> bool:
        return True

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Time scales and the skip are no weights: without decay."""
        return dict.fromkeys(("log_decay", "skip", "dt.bias"), ParameterRule(weight_decay=False))

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        return self._run(x, keep, {"past": None, "state": None})

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        out, after = self._run(x[:, None], None, cache)
        return out[:, 0], after

    def _run(self, x: Tensor, keep: Tensor | None, before: Cache) -> tuple[Tensor, Cache]:
        u, gate = self.enter(x).chunk(2, -1)
        u, past = self.conv(u, keep, before["past"])
        rank, b, c = self.select(u).split(self.sizes, -1)
        dt = F.linear(rank, self.dt.weight)
        if keep is not None:
            dt = dt.masked_fill(~keep[..., None], -torch.inf)
        with torch.autocast(u.device.type, enabled=False):
            y, state = selective_scan(
                u,
                dt,
                -wide(self.log_decay).exp(),
                wide(b),
                wide(c),
                before["state"],
                zoh=self.zoh,
                bias=wide(self.dt.bias),
                skip=wide(self.skip),
                gate=gate,
            )
        return self.out(y), {"past": past, "state": state}
