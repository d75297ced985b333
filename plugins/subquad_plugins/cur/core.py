"""CUR as an attention core: selects rows of Q and K, then attends through them.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, m picks.
Reference: paper Algorithm 1. Departures: picks are each sample's and head's own, among its real
tokens; the scale E^-1/2 of Eq. 1, which Algorithm 1 leaves out; the inverse starts from each
matrix's own norms.
"""

from __future__ import annotations

from torch import Tensor

from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.cur import Config
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.cur.picking import Picking


class CUR(Picking, AttentionCore):
    """CUR attention.

    Args:
        config: see `Config`.
        site: where it stands; its seed and layer fix what selection "random" picks in evaluation.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        self.set_up(config, site)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        (q_idx, q_picked), (k_idx, k_picked) = self.picks(q, k, query_keep, key_keep)
        return cur_attention(
            q,
            k,
            v,
            q_idx,
            k_idx,
            key_keep=key_keep,
            picks_keep=(q_picked, k_picked),
            renormalise=self.config.renormalise,
            function=self.config.function,
            **self.how(),
        )
