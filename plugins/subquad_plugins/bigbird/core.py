"""BigBird attention: each block sees itself, its two neighbours, random blocks, the first and the last block.

Departures from the paper's code: tokens are counted among the real ones, so the last block is the last with real ones;
one random block is drawn in each of r equal parts of the blocks that are left, so none is drawn twice.

Letters: B batch, H heads, L length, E head width, N blocks, b tokens of a block, r random blocks.
Reference: Zaheer et al. 2020, section 2 and appendix D (internal transformer construction).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.bigbird import Config
from subquad_plugins.numerics.parts import attention_in_parts
from subquad_plugins.numerics.places import among_real, take_tokens
from subquad_plugins.numerics.windows import around

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
        return among_real("bigbird", self._attend, q, k, v, key_keep)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """As `forward`; each sample's real tokens are its first ones, (B,) many."""
        batch, heads, length, size = *q.shape[:3], self.block
        q, k, v = (F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, -length % size)) for x in (q, k, v))
        number = torch.arange(q.shape[1], device=q.device)
        block, within = number[::size, None] // size, number[:size]
        real, last = number < lengths[:, None], (lengths[:, None] - 1) // size
        ends = torch.cat([within.expand(batch, -1), last * size + within], 1)
        # Where the first block is the last one too, it is seen once.
        end_seen = real.gather(1, ends) & ((ends >= size) | (torch.arange(2 * size, device=q.device) < size))
        near = block + torch.arange(-1, 2, device=q.device)
        near_seen = ((near > 0) & (near < last[..., None]))[:, :, None]
        drawn = self.random_blocks(block, last[..., None, None])
        far, far_seen = (x.expand(batch, heads, -1, -1).transpose(1, 2) for x in drawn)
        rows = (far.clamp(0, len(block) - 1) + len(block) * torch.arange(heads, device=q.device)[:, None]).flatten(1)

        def drawn_blocks(x: Tensor) -> Tensor:
            blocks = x.transpose(1, 2).reshape(batch, -1, size, x.shape[3])
            return take_tokens(blocks, rows).view(batch * len(block), heads, -1, x.shape[3])

        def of_tokens(seen: Tensor) -> Tensor:
            return seen.flatten(0, 1).repeat_interleave(size, 2)[:, :, None]

        at_ends = [take_tokens(x, ends).transpose(1, 2) for x in (q, k, v)]
        beside = [around(x, size, size, size) for x in (k, v)]
        parts = [*at_ends[1:], end_seen[:, None, None], *beside, of_tokens(near_seen)]
        out = attention_in_parts(q, *parts, drawn_blocks(k), drawn_blocks(v), of_tokens(far_seen))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        dense = F.scaled_dot_product_attention(at_ends[0], k, v, attn_mask=real[:, None, None]).transpose(1, 2)
        inner = ((number >= size) & (number // size != last))[..., None, None]
        place = torch.where(number < size, number, size + number % size).expand(batch, -1)
        return torch.where(inner, out, take_tokens(dense, place))[:, :length].transpose(1, 2)

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
        chosen = torch.where(chosen < before, chosen + 1, chosen - before + block + 2)
        return chosen, (stop > start).expand(chosen.shape)
