"""CUR attention on Mega's scores: a few columns and rows of S = scale q k^T + B, and of B no more
than these.

    C = f(S[:, k_idx])  (L, r)     R = f(S[q_idx, :])  (p, L)     U = C[q_idx]
    out = C U+ (R value)

f is Mega's softmax (C's over the selected keys alone) or Laplace, which acts on each score alone,
so that C and R are then true columns and rows of Mega's attention matrix.

Letters: B batch, L length, z attention width, v value width, p and r selected queries and keys.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.cur.picking import Picks
from subquad_plugins.mega.attention import Form
from subquad_plugins.mega.bias import bias_columns, bias_rows


def megacur_attention(
    q: Tensor,
    k: Tensor,
    value: Tensor,
    queries: Picks,
    keys: Picks,
    distances: Tensor,
    form: Form,
    *,
    keep: Tensor | None = None,
    **inverse: Any,
) -> Tensor:
    """Mega's single-head attention through selected queries and keys.

    Args:
        q: (B, 1, L, z).
        k: (B, 1, L, z).
        value: (B, 1, L, v).
        queries: q_idx (B, 1, p), and which of them count (B, 1, p) bool or None for all.
        keys: k_idx (B, 1, r), and which of them count.
        distances: the bias by distance, (2 L - 1,): see `RelativeBias.distances`.
        form: f and its scale: z^-1/2, or 1 / (number of a sample's real keys) for laplace.
        keep: (B, L) bool, True = real token.
        inverse: how U is inverted and what is done to the result: see `cur_attention`.

    Returns:
        (B, 1, L, v), dtype of value.
    """
    q_idx, q_counts = queries
    k_idx, k_counts = keys
    return cur_attention(
        q,
        k,
        value,
        q_idx,
        k_idx,
        key_keep=keep,
        picks_keep=(q_counts, k_counts),
        function=form,
        bias=(bias_columns(distances, k_idx), bias_rows(distances, q_idx)),
        **inverse,
    )
