"""The layer around a linear state space model: out = gate(gelu(y + D x)), with y the model's
output.

Everything inside the model is computed in fp32 at least, also under autocast. Padding enters as
zeros.

Letters: B batch, L length, D channels, N state width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import Cache, ParameterRule, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.s4d import StateSpaceConfig

SLOW = ParameterRule(lr_scale=0.1, weight_decay=False)
"""For what sets the time scales of a state space: the authors train these at 1e-3 beside 1e-2,
without decay.
"""


class StateSpaceMixer(TokenMixer):
    """A state space model between projections.

    Args:
        config: whether it looks both ways.
        site: causal or not.
        out_width: outputs of the last projection: 2 D for a gated linear unit of two halves.
    """

    SLOW: tuple[str, ...] = ()
    """Names of the parameters that `parameter_rules` slows."""

    def __init__(self, config: StateSpaceConfig, site: Site, out_width: int):
        super().__init__()
        self.causal = site.causal or not config.bidirectional
        self.skip = nn.Parameter(torch.randn(site.dim))
        self.out = nn.Linear(site.dim, out_width)

    @abstractmethod
    def mix(self, x: Tensor) -> Tensor:
        """y of (B, L, D), of at least fp32, zeros at padding."""

    @abstractmethod
    def start(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """The state after the real tokens of each sample, with the batch first; x as for `mix`,
        real tokens first.
        """

    @abstractmethod
    def advance(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """y at the next token (B, D), and the state after it."""

    def gate(self, hidden: Tensor) -> Tensor:
        """What comes of gelu(y + D x): a gated linear unit."""
        return F.glu(self.out(hidden), -1)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            y = self.mix(_real(x, keep))
        return self._finished(y, x)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return dict.fromkeys(self.SLOW, SLOW)

    @property
    def caches(self) -> bool:
        return self.causal

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        with torch.autocast(x.device.type, enabled=False):
            real = _real(x, keep)
            y = self.mix(real)
            state = self.start(real, keep)
        return self._finished(y, x), {"state": state}

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        with torch.autocast(x.device.type, enabled=False):
            y, state = self.advance(wide(x), cache["state"])
        return self._finished(y, x), {"state": state}

    def _finished(self, y: Tensor, x: Tensor) -> Tensor:
        return self.gate(F.gelu(self.skip * x + y).to(x.dtype))


def _real(x: Tensor, keep: Tensor | None) -> Tensor:
    x = wide(x)
    if keep is None:
        return x
    return x.masked_fill(~keep[..., None], 0.0)


def log_time_steps(shape: tuple[int, ...], low: float, high: float) -> Tensor:
    """Logarithms of time steps, drawn evenly between those of `low` and `high`."""
    bounds = torch.tensor([low, high]).log()
    return bounds[0] + torch.rand(shape) * (bounds[1] - bounds[0])


def hippo(width: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (width / 2,) with positive frequency of the normal part of HiPPO-LegS, and
    eigenvectors.
    """
    root = torch.sqrt(2 * torch.arange(width, dtype=torch.float64) + 1)
    skew = torch.outer(root, root).triu(1) / 2
    values, vectors = torch.linalg.eigh(-1j * (skew - skew.T))
    chosen = values.argsort(descending=True)[: width // 2]
    poles = torch.complex(torch.full((width // 2,), -0.5, dtype=torch.float64), values[chosen])
    return poles.to(torch.complex64), vectors[:, chosen].to(torch.complex64)
