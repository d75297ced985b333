"""MegaCUR as a token mixer: Mega's gated layer with CUR attention in place of the dense one.

Letters: B batch, G chunks, c chunk length, z attention width, v value width, m picks.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.cur.seed import register_seed
from subquad_plugins.cur.selection import select_indices
from subquad_plugins.mega.layer import GatedAttention
from subquad_plugins.megacur import Config
from subquad_plugins.megacur.attention import Picks, megacur_attention


class MegaCUR(GatedAttention):
    """Mega's layer with CUR attention: the weights of Mega under the same names, and none of its own.

    Args:
        config: see `Config`.
        site: where it stands; its seed and layer fix what selection "random" picks in evaluation.
    """

    seed: Tensor | None

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site)
        self.cur = config
        # In chunks, "first" is the first token of each.
        self.force_first = config.force_class == "always" or (
            config.force_class == "auto" and site.num_prefix_tokens > 0
        )
        register_seed(self, site, wanted=config.selection == "random")

    def attend(self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor) -> Tensor:
        chunks = q.shape[1]
        # Each chunk is a sample of its own.
        q, k, value = (one.flatten(0, 1) for one in (q, k, value))
        keep = None if keep is None else keep.flatten(0, 1)
        queries, keys = self.picks(q, k, keep)
        cur = self.cur
        out = megacur_attention(
            q,
            k,
            value,
            queries,
            keys,
            bias,
            cur.attention,
            keep=keep,
            iterations=cur.iterations,
            pinv=cur.pinv,
            through_start=cur.start_gradient,
            ridge=cur.ridge,
            copy_rows=cur.copy_rows,
            renormalise=cur.renormalise,
        )
        return out.unflatten(0, (-1, chunks))

    def picks(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Picks, Picks]:
        """The selected queries and keys of q and k (B G, c, z): indices (B G, m), and which of them count."""
        if self.cur.mode == "same":
            both = self._select(q, k, self.cur.same_source, keep, 0)
            return both, both
        return self._select(q, k, "q", keep, 0), self._select(q, k, "k", keep, 1)

    def _select(
        self, q: Tensor, k: Tensor, source: Literal["q", "k", "q+k"], keep: Tensor | None, stream: int
    ) -> Picks:
        index, counts = select_indices(
            q[:, None],
            k[:, None],
            self.cur.num_indices,
            self.cur.selection,
            source=source,
            column=self.cur.column,
            keep=keep,
            force_first=self.force_first,
            seed=None if self.training or self.seed is None else self.seed + stream,
        )
        return index[:, 0], None if counts is None else counts[:, 0]
