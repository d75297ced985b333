"""BigBird attention: each block sees itself, its two neighbours, random blocks, the first and the
last block.

Departures from the paper's code: tokens are counted among the real ones, so the last block is the
last with real ones; one random block is drawn in each of r equal parts of the blocks that are left,
so none is drawn twice.

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
from subquad_plugins.numerics.windowed_attention import around

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
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        return among_real("bigbird", self._attend, q, k, v, key_keep)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """As `forward`; each sample's real tokens are its first ones, (B,) many."""
        batch, heads, length = q.shape[:3]
        size = self.block
        q, k, v = (F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, -length % size)) for x in (q, k, v))
        number = torch.arange(q.shape[1], device=q.device)
        block = number[::size, None] // size
        real = number < lengths[:, None]
        last = (lengths[:, None] - 1) // size
        ends, real_ends = _end_tokens(real, last, size)
        near = block + torch.arange(-1, 2, device=q.device)
        near_exists = ((near > 0) & (near < last[..., None]))[:, :, None]
        drawn = self.random_blocks(block, last[..., None, None])
        far, far_exists = (x.expand(batch, heads, -1, -1).transpose(1, 2) for x in drawn)
        head_start = len(block) * torch.arange(heads, device=q.device)[:, None]
        rows = (far.clamp(0, len(block) - 1) + head_start).flatten(1)

        def drawn_blocks(x: Tensor) -> Tensor:
            blocks = x.transpose(1, 2).reshape(batch, -1, size, x.shape[3])
            return take_tokens(blocks, rows).view(batch * len(block), heads, -1, x.shape[3])

        def of_tokens(exists: Tensor) -> Tensor:
            return exists.flatten(0, 1).repeat_interleave(size, 2)[:, :, None]

        end_queries, *end_rows = (take_tokens(x, ends).transpose(1, 2) for x in (q, k, v))
        beside = [around(x, size, size, size) for x in (k, v)]
        parts = [*end_rows, real_ends[:, None, None], *beside, of_tokens(near_exists)]
        out = attention_in_parts(q, *parts, drawn_blocks(k), drawn_blocks(v), of_tokens(far_exists))
        dense = F.scaled_dot_product_attention(
            end_queries, k.transpose(1, 2), v.transpose(1, 2), attn_mask=real[:, None, None]
        )
        inner = ((number >= size) & (number // size != last))[..., None, None]
        place = torch.where(number < size, number, size + number % size).expand(batch, -1)
        out = torch.where(inner, out, take_tokens(dense.transpose(1, 2), place))
        return out[:, :length].transpose(1, 2)

    def random_blocks(self, block: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Blocks drawn from those strictly between the first and the last that are no neighbours.

        Args:
            block: (N, 1), numbers of the blocks that see them.
            last: (B, 1, 1, 1), each sample's last block.

        Returns:
            their numbers, (B, H, N, r), and whether there are so many.
        """
        draw = self.draw[:, block[:, 0] % DRAWN]
        count = self.draw.shape[2]
        before = (block - 2).clamp_min(0).minimum((last - 1).clamp_min(0))
        left = before + (last - 2 - block).clamp_min(0)
        part = torch.arange(count, device=last.device)
        start = part * left // count
        stop = (part + 1) * left // count
        chosen = start + draw % (stop - start).clamp_min(1)
        chosen = torch.where(chosen < before, chosen + 1, chosen - before + block + 2)
        return chosen, (stop > start).expand(chosen.shape)


def _end_tokens(real: Tensor, last: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The tokens of each sample's first and last block, (B, 2 size), and which of them are keys."""
    within = torch.arange(size, device=real.device)
    ends = torch.cat([within.expand(len(real), -1), last * size + within], 1)
    # Where the first block is the last one too, its tokens are keys once.
    first = torch.arange(2 * size, device=real.device) < size
    return ends, real.gather(1, ends) & ((ends >= size) | first)
