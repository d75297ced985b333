"""The control: attention's value and output projections with nothing between them, or nothing at
all.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import Cache, TokenMixer
from subquad.plugin import Site
from subquad_plugins.identity import Config


class Identity(TokenMixer):
    """Each token alone: out(value(x)), or zero, which leaves only the residual path.

    The projections have the names and shapes of `AttentionMixer`'s, so that the control keeps that
    capacity.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        if config.projections:
            self.value = nn.Linear(site.dim, site.dim)
            self.out = nn.Linear(site.dim, site.dim)
        else:
            self.value = None
            self.out = None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        if self.value is None or self.out is None:
            return torch.zeros_like(x)
        return self.out(self.value(x))

    @property
    def caches(self) -> bool:
        return True

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        return self(x), {}

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        return self(x), {}
