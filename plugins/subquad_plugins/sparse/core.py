"""Attention of a Sparse Transformer: one softmax over near tokens and over regularly placed ones
that are far.

Departures from the paper: both parts of a pattern are merged in every head, its second choice of
three; a core that is not causal sees later tokens by the same rule.

Letters: B batch, H heads, L length, E head width, N blocks, l tokens of a block, S near keys, K far
keys, G groups of queries that share far keys.
Reference: Child et al. 2019, sections 4.2 and 4.3.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.numerics.key_cache import KeyCacheCore
from subquad_plugins.numerics.places import among_real
from subquad_plugins.sparse import Config


class Sparse(KeyCacheCore):
    """Sparse attention; tokens are counted among the real ones of a sample.

    Args:
        config: see `Config`.
        site: causal or not; the block follows from its longest sequence where none is given.

    Raises:
        PluginError: neither a block nor the longest sequence is known.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        if not (config.block or site.max_len):
            raise PluginError(
                "sparse: the length of the longest sequence is not known; give `block`"
            )
        self.strided = config.pattern == "strided"
        self.summary = config.summary
        self.causal = site.causal
        # Where near and far keys are equally many; a fixed pattern has `summary` far keys for each
        # block.
        cheapest = math.ceil(math.sqrt(site.max_len * (1 if self.strided else self.summary)))
        self.block = config.block or (cheapest if self.strided else max(cheapest, self.summary))

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a key's token is near a query's, by their numbers."""
        if self.strided:
            return (query - key).abs() <= self.block
        return query // self.block == key // self.block

    def far(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a query sees a key at any distance."""
        if self.strided:
            return (query - key) % self.block == 0
        return key % self.block >= self.block - self.summary

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        visible = self.near(query, key) | self.far(query, key)
        if self.causal:
            return visible & (key <= query)
        return visible

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        return among_real("sparse", self._attend, q, k, v, key_keep)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """As `forward`; each sample's real tokens are its first ones, (B,) many."""
        length = q.shape[2]
        size = min(self.block, q.shape[2])
        q = q * q.shape[-1] ** -0.5
        q, k, v = (F.pad(x, (0, 0, 0, -length % size)).unflatten(2, (-1, size)) for x in (q, k, v))
        numbers = torch.arange(q.shape[2] * size, device=q.device).view(-1, size)
        query = numbers[..., None]
        ends = lengths[:, None, None, None]
        near = self._around(numbers)
        far = self._far_tokens(numbers)
        beside = (
            self.sees(query, near)
            & self.near(query, near)
            & (near >= 0)
            & ((near < ends) | (near == query))
        )
        beyond = self.sees(query, far) & ~self.near(query, far) & (far < ends)
        scores = torch.cat(
            [q @ self._beside(k).mT, self._ungrouped(self._grouped(q) @ self._beyond(k).mT, q)], -1
        )
        allowed = torch.cat([beside, beyond], -1)[:, None]
        weights = scores.masked_fill_(~allowed, -torch.inf).softmax(-1)
        here, there = weights.split([near.shape[-1], far.shape[-1]], -1)
        out = here @ self._beside(v) + self._ungrouped(self._grouped(there) @ self._beyond(v), q)
        return out.flatten(2, 3)[:, :, :length]

    def _around(self, numbers: Tensor) -> Tensor:
        """(N, 1, S), numbers of the tokens that may be near any of a block; some lie beyond the
        sequence.
        """
        size = numbers.shape[1]
        if self.strided:
            before = size
            after = 0 if self.causal else size
        else:
            before = 0
            after = 0
        return numbers[:, :1, None] + torch.arange(-before, size + after, device=numbers.device)

    def _beside(self, x: Tensor) -> Tensor:
        """These tokens of each block, (B, H, N, l, E) to (B, H, N, S, E); zeros beyond the
        sequence.
        """
        if not self.strided:
            return x
        after = 0 if self.causal else 1
        padded = F.pad(x, (0, 0, 0, 0, 1, after))
        return torch.cat([padded[:, :, i : i + x.shape[2]] for i in range(2 + after)], 3)

    def _far_tokens(self, numbers: Tensor) -> Tensor:
        """(1, G, K), numbers of the tokens that a group of queries may see at any distance."""
        if self.strided:
            return numbers.mT[None]
        return numbers[:, -self.summary :].reshape(1, 1, -1)

    def _beyond(self, x: Tensor) -> Tensor:
        """These tokens of each group, (B, H, N, l, E) to (B, H, G, K, E)."""
        return self._grouped(x if self.strided else x[:, :, :, -self.summary :])

    def _grouped(self, x: Tensor) -> Tensor:
        """(B, H, N, l, ..) to (B, H, G, queries of a group, ..): a stride's phases are groups,
        or all are one.
        """
        if self.strided:
            return x.transpose(2, 3)
        return x.flatten(2, 3)[:, :, None]

    def _ungrouped(self, x: Tensor, like: Tensor) -> Tensor:
        if self.strided:
            return x.transpose(2, 3)
        return x[:, :, 0].unflatten(2, like.shape[2:4])
