"""Primal attention: e = q W_e|X, r = k W_r|X, with q and k of norm 1; out = [e r] joined by a
layer. There is no V.

W_e|X = X_s^T W_e, of s evenly placed tokens X_s, and W_r|X likewise. Departures from the authors'
code: tokens are placed among the real ones; the loss counts real tokens, and each sample has its
own.

Letters: B batch, L length, D model width, H heads, E head width, R rank, s tokens that make the
directions.
Reference: Chen et al. 2023, sections 3 and 4.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.places import places_of, take_tokens
from subquad_plugins.primal import Config


class Primal(TokenMixer):
    """Primal attention. Its weights have one row for each of the s tokens.

    Args:
        config: see `Config`.
        site: where it stands; its longest sequence limits s.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.num_heads = site.num_heads
        dim = site.dim
        rank = config.rank
        tokens = min(rank * config.tokens_per_rank, site.max_len or rank * config.tokens_per_rank)
        if config.ksvd_weight:
            self.loss_weights = {"ksvd": config.ksvd_weight}
        else:
            self.loss_weights = {}
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.left = nn.Parameter(nn.init.orthogonal_(torch.empty(self.num_heads, tokens, rank)))
        self.right = nn.Parameter(nn.init.orthogonal_(torch.empty(self.num_heads, tokens, rank)))
        if config.ksvd_weight:
            self.scale = nn.Parameter(torch.rand(self.num_heads, rank))
        else:
            self.scale = None
        self.join = nn.Linear(2 * rank, site.head_dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        left, right = self.scores(x, keep)
        out = self.out(self.join(torch.cat([left, right], -1)).transpose(1, 2).flatten(2))
        if self.scale is None:
            return MixerOutput(out)
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        return MixerOutput(out, {"ksvd": self._loss(left, right, self.scale, keep)})

    def scores(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """e and r, (B, H, L, R)."""
        q, k = (F.normalize(self._split(project(x)), dim=-1) for project in (self.query, self.key))
        placed = self._split(take_tokens(x, self._places(x, keep)))
        return q @ (placed.mT @ self.left), k @ (placed.mT @ self.right)

    def _places(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """(B, s), from the first real token of each sample to the last; some twice where there
        are fewer.
        """
        count = self.left.shape[1]
        steps = torch.arange(count, device=x.device)
        if keep is None:
            return (steps * (x.shape[1] - 1) // max(count - 1, 1)).expand(x.shape[0], -1)
        places = places_of(keep)
        return places.order.gather(1, steps * (places.lengths[:, None] - 1) // max(count - 1, 1))

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, E)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _loss(self, left: Tensor, right: Tensor, scale: Tensor, keep: Tensor) -> Tensor:
        """((J_e + J_r) / 2 - tr W_e^T W_r)^2, means over heads, (B,)."""
        squares = left.square() + right.square()
        sizes = (squares @ scale.square()[..., None]).squeeze(-1).mean(1)
        size = sizes.masked_fill(~keep, 0).sum(1) / keep.sum(1).clamp_min(1) / 2
        return (size - (self.left * self.right).sum((1, 2)).mean()).square()
