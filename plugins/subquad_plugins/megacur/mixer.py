"""MegaCUR as a token mixer: Mega's gated layer with CUR attention in place of the dense one.

Letters: B batch, G chunks, c chunk length, z attention width, v value width, m picks.
"""

from __future__ import annotations

from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.cur.picking import Picking
from subquad_plugins.mega.layer import GatedAttention
from subquad_plugins.megacur import Config
from subquad_plugins.megacur.attention import megacur_attention


class MegaCUR(Picking, GatedAttention):
    """Mega's layer with CUR attention: the weights of Mega under the same names, and none of its
    own.

    In chunks, "the first token" of `force_class` is the first of each.

    Args:
        config: see `Config`.
        site: where it stands; its seed and layer fix what selection "random" picks in evaluation.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site)
        self.cur = config
        self.set_up(config, site)

    def attend(
        self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor
    ) -> Tensor:
        chunks = q.shape[1]
        # Each chunk is a sample of its own, with one head.
        q, k, value = (rows.flatten(0, 1)[:, None] for rows in (q, k, value))
        if keep is not None:
            keep = keep.flatten(0, 1)
        queries, keys = self.picks(q, k, keep, keep)
        out = megacur_attention(
            q,
            k,
            value,
            queries,
            keys,
            bias,
            self.cur.attention,
            keep=keep,
            renormalise=self.cur.renormalise,
            **self.how(),
        )
        return out[:, 0].unflatten(0, (-1, chunks))
