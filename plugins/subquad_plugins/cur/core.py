"""CUR as an attention core: selects rows of Q and K, then attends through them.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, m picks.
Reference: paper Algorithm 1. Departures: picks are each sample's and head's own, among its real tokens; the scale
E^-1/2 of Eq. 1, which Algorithm 1 leaves out; the inverse starts from each matrix's own norms.
"""

from __future__ import annotations

from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.cur import Config
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.cur.seed import register_seed
from subquad_plugins.cur.selection import Source, select_indices

Picks = tuple[Tensor, Tensor | None]


class CUR(AttentionCore):
    """CUR attention.

    Args:
        config: see `Config`.
        site: where it stands; its seed and layer fix what selection "random" picks in evaluation.
    """

    seed: Tensor | None

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        self.force_first = config.force_class == "always" or (
            config.force_class == "auto" and site.num_prefix_tokens > 0
        )
        register_seed(self, site, wanted=config.selection == "random")

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        (q_idx, q_picked), (k_idx, k_picked) = self._picks(q, k, query_keep, key_keep)
        c = self.config
        return cur_attention(
            q,
            k,
            v,
            q_idx,
            k_idx,
            key_keep=key_keep,
            picks_keep=(q_picked, k_picked),
            iterations=c.iterations,
            pinv=c.pinv,
            through_start=c.start_gradient,
            ridge=c.ridge,
            copy_rows=c.copy_rows,
            renormalise=c.renormalise,
            function=c.function,
        )

    def _picks(self, q: Tensor, k: Tensor, query_keep: Tensor | None, key_keep: Tensor | None) -> tuple[Picks, Picks]:
        """Which queries and which keys, with the masks of those that count."""
        c = self.config
        if c.mode == "different":
            return self._select(q, k, "q", query_keep, 0), self._select(q, k, "k", key_keep, 1)
        if q.shape[2] != k.shape[2]:
            raise PluginError(
                f"cur: mode same needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}; use mode different"
            )
        both = query_keep if key_keep is None else key_keep if query_keep is None else query_keep & key_keep
        picks = self._select(q, k, c.same_source, both, 0)
        return picks, picks

    def _select(self, q: Tensor, k: Tensor, source: Source, keep: Tensor | None, stream: int) -> Picks:
        c = self.config
        return select_indices(
            q,
            k,
            c.num_indices,
            c.selection,
            source=source,
            column=c.column,
            keep=keep,
            force_first=self.force_first,
            seed=None if self.training or self.seed is None else self.seed + stream,
        )
