"""BigBird attention: each block sees itself, its two neighbours, random blocks, the first and the last block.

Departures from the paper's code: tokens are counted among the real ones, so the last block is the last with real ones;
one random block is drawn in each of r equal parts of the blocks that are left, so none is drawn twice.

Letters: B batch, H heads, L length, E head width, N blocks, b tokens of a block, r random blocks, S blocks seen.
Reference: Zaheer et al. 2020, section 2 and appendix D (internal transformer construction).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.bigbird import Config
from subquad_plugins.numerics.places import among_real
from subquad_plugins.numerics.tensors import take_rows

DRAWN = 256
"""Blocks with random numbers of their own; those of later blocks repeat."""


class BigBird(AttentionCore):
    """BigBird attention. `draw` (H, 256, r) has whole numbers that choose the random blocks.

    Args:
        config: see `Config`.
        site: its seed and layer fix what is drawn.
    """

    draw: Tensor

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.block = config.block
        generator = torch.Generator().manual_seed(1009 * site.seed + site.layer_index)
        shape = (site.num_heads, DRAWN, config.num_random)
        self.register_buffer("draw", torch.randint(2**31, shape, generator=generator, device="cpu"))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        if q.shape[2] != k.shape[2]:
            raise PluginError(f"bigbird needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}")
        return among_real(self._attend, q, k, v, key_keep)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """As `forward`; each sample's real tokens are its first ones, (B,) many."""
        length, size = q.shape[2], self.block
        blocks, number = -(-length // size), torch.arange(length, device=q.device)
        last = (lengths[:, None] - 1) // size
        out = self._sparse(q, k, v, lengths, *self._seen(last[..., None, None], blocks))
        ends = torch.cat([torch.arange(size, device=q.device).expand(q.shape[0], -1), last * size + number[:size]], 1)
        rows = take_rows(q, ends.clamp_max(length - 1)[:, None])
        mask = (number < lengths[:, None])[:, None, None]
        dense = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask)
        place = torch.where(number < size, number, size + number - last * size).clamp(0, ends.shape[1] - 1)
        everywhere = (number < size) | (number // size == last)
        return torch.where(everywhere[:, None, :, None], take_rows(dense, place[:, None]), out)

    def _sparse(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, seen: Tensor, valid: Tensor) -> Tensor:
        """Attention of each block to the blocks that it sees, (B, H, N, S); the first one counts always."""
        length, size, blocks = q.shape[2], self.block, seen.shape[2]
        q, k, v = (F.pad(x, (0, 0, 0, -length % size)).unflatten(2, (blocks, size)) for x in (q, k, v))
        heads = torch.arange(seen.shape[0] * seen.shape[1], device=q.device).view(*seen.shape[:2], 1, 1)
        rows = (heads * blocks + seen).flatten()  # whole rows are taken many times quicker than by `gather`
        keys, values = (
            x.flatten(0, 2).flatten(1).index_select(0, rows).view(*seen.shape[:3], -1, x.shape[-1]) for x in (k, v)
        )
        numbers = seen[..., None] * size + torch.arange(size, device=q.device)
        allowed = valid[..., None] & (numbers < lengths[:, None, None, None, None])
        mixed = F.scaled_dot_product_attention(
            q.flatten(0, 2),
            keys.flatten(0, 2),
            values.flatten(0, 2),
            attn_mask=allowed.flatten(3).flatten(0, 2)[:, None],
        )
        return mixed.view(q.shape[:-1] + v.shape[-1:]).flatten(2, 3)[:, :, :length]

    def _seen(self, last: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
        """Numbers of the blocks that each block sees, (B, H, N, S), and which of them count; last is (B, 1, 1, 1)."""
        block = torch.arange(blocks, device=last.device)[:, None]
        near = block + torch.arange(-1, 2, device=last.device)
        far, there = self.random_blocks(block, last)
        parts = [torch.zeros_like(last), last, near, far]
        counts = [torch.ones_like(last).bool(), last > 0, (near > 0) & (near < last), there]
        shape = (last.shape[0], self.draw.shape[0], blocks, -1)
        seen, valid = (torch.cat([one.expand(shape) for one in every], -1) for every in (parts, counts))
        return seen.clamp(0, blocks - 1), valid

    def random_blocks(self, block: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Blocks drawn from those strictly between the first and the last that are no neighbours.

        Args:
            block: (N, 1), numbers of the blocks that see them.
            last: (B, 1, 1, 1), each sample's last block.

        Returns:
            their numbers, (B, H, N, r), and whether there are so many.
        """
        draw, count = self.draw[:, block[:, 0] % DRAWN], self.draw.shape[2]
        before = (block - 2).clamp_min(0).minimum((last - 1).clamp_min(0))
        left = before + (last - 2 - block).clamp_min(0)
        part = torch.arange(count, device=last.device)
        start, stop = part * left // count, (part + 1) * left // count
        chosen = start + draw % (stop - start).clamp_min(1)
        return torch.where(chosen < before, chosen + 1, chosen - before + block + 2), (stop > start).expand(
            chosen.shape
        )
