"""Singularformer: out = softmax_r(S) Attention(P X), P = softmax over tokens of S^T, S = X W.

Departures from the authors' code: padded tokens have no part in the loss; each sample has its own.

Letters: B batch, L length, D model width, H heads, E head width, r packed tokens.
Reference: Wu et al. 2023.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.singularformer import Config


class Singularformer(TokenMixer):
    """Singularformer's attention.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.num_heads = site.num_heads
        if config.ortho_weight:
            self.loss_weights = {"ortho": config.ortho_weight}
        else:
            self.loss_weights = {}
        self.scores = nn.Linear(site.dim, config.rank)
        self.query = nn.Linear(site.dim, site.dim)
        self.key = nn.Linear(site.dim, site.dim)
        self.value = nn.Linear(site.dim, site.dim)
        self.out = nn.Linear(site.dim, site.dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        scores = wide(self.scores(x))
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        # In a sample without real tokens all count, as a softmax of none is NaN.
        pack = (
            scores.masked_fill(~(keep | ~keep.any(1, keepdim=True))[..., None], -torch.inf)
            .softmax(1)
            .mT
        )
        unpack = scores.softmax(-1)
        packed = (pack @ x.to(pack.dtype)).to(x.dtype)
        q, k, v = (
            project(packed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        mixed = self.out((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))
        out = (unpack @ mixed.to(unpack.dtype)).to(mixed.dtype)
        if not self.loss_weights:
            return MixerOutput(out)
        return MixerOutput(
            out, {"ortho": _loss(pack, unpack.masked_fill(~keep[..., None], 0), weights)}
        )


def _loss(pack: Tensor, unpack: Tensor, weights: Tensor) -> Tensor:
    """Off-diagonal means, (B,): squares of P P^T and U^T U, and the packed tokens' attention
    itself.
    """
    squares = (pack @ pack.mT).square() + (unpack.mT @ unpack).square() + weights.mean(1)
    apart = 1 - torch.eye(squares.shape[-1], dtype=squares.dtype, device=squares.device)
    return (squares * apart).mean((1, 2))
