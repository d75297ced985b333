"""MegaCUR as a token mixer: Mega's gated layer with CUR attention in place of the dense one.

    C = f(S[:, k_idx])  (c, r)     R = f(S[q_idx, :])  (p, c)     U = C[q_idx]     a = C U+ (R value)

with scores S = scale q k^T + B of which only these columns and rows are made: the bias too is gathered, B[:, k_idx] and
B[q_idx, :], so nothing of size c x c exists. f is Mega's softmax (C's over the selected keys alone) or Laplace, which
acts on each score alone, so that C and R are then true columns and rows of Mega's attention matrix.

Letters: B batch, G chunks, c chunk length, z attention width, v value width, p and r selected queries and keys.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.cur.selection import select_indices
from subquad_plugins.mega.bias import bias_columns, bias_rows
from subquad_plugins.mega.layer import GatedAttention
from subquad_plugins.megacur import Config


class MegaCUR(GatedAttention):
    """Mega's layer with CUR attention: the weights of Mega under the same names, and none of its own.

    Args:
        config: see `Config`.
        site: where it stands; its seed and layer fix what selection "random" picks in evaluation.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site)
        self.cur = config
        # In chunks, "first" is the first token of each.
        self.force_first = config.force_class == "always" or (
            config.force_class == "auto" and site.num_prefix_tokens > 0
        )
        self.seed = 2 * (1009 * site.seed + site.layer_index)

    def attend(self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor) -> Tensor:
        chunks = q.shape[1]
        # Each chunk is a sample with one head.
        q, k, value = (one.flatten(0, 1)[:, None] for one in (q, k, value))
        keep = None if keep is None else keep.flatten(0, 1)
        return self._attend_cur(q, k, value, keep, bias)[:, 0].unflatten(0, (-1, chunks))

    def _attend_cur(self, q: Tensor, k: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor) -> Tensor:
        """(B G, 1, c, v)."""
        cur = self.cur
        if cur.mode == "same":
            q_idx, q_picked = k_idx, k_picked = self._select(q, k, cur.same_source, keep, 0)
        else:
            q_idx, q_picked = self._select(q, k, "q", keep, 0)
            k_idx, k_picked = self._select(q, k, "k", keep, 1)
        return cur_attention(
            q,
            k,
            value,
            q_idx,
            k_idx,
            key_keep=keep,
            picks_keep=(q_picked, k_picked),
            iterations=cur.iterations,
            pinv=cur.pinv,
            through_start=cur.start_gradient,
            ridge=cur.ridge,
            copy_rows=cur.copy_rows,
            renormalise=cur.renormalise,
            function=cur.attention,
            bias=(bias_columns(bias, k_idx), bias_rows(bias, q_idx)),
        )

    def _select(
        self, q: Tensor, k: Tensor, source: Literal["q", "k", "q+k"], keep: Tensor | None, stream: int
    ) -> tuple[Tensor, Tensor | None]:
        """Which tokens, (B G, 1, m), and which of these count."""
        return select_indices(
            q,
            k,
            self.cur.num_indices,
            self.cur.selection,
            source=source,
            column=self.cur.column,
            keep=keep,
            force_first=self.force_first,
            seed=None if self.training else self.seed + stream,
        )
