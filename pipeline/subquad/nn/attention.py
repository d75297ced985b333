"""Any attention core with the calls and the weights of `torch.nn.MultiheadAttention`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn.mixer import AttentionCore, as_output


class MultiheadAttention(nn.MultiheadAttention):
    """A drop-in for `torch.nn.MultiheadAttention`: same weights by name and shape, another core.
    Losses are left out.

    Args:
        core: the attention core, built for this width and these heads.
        embed_dim: model width D.
        num_heads: heads H.
        bias: whether the projections have biases.
        batch_first: inputs are (B, L, D), not (L, B, D).
    """

    def __init__(
        self,
        core: AttentionCore,
        embed_dim: int,
        num_heads: int,
        *,
        bias: bool = True,
        batch_first: bool = False,
    ):
        super().__init__(embed_dim, num_heads, bias=bias, batch_first=batch_first)
        self.core = core
        # torch's encoder layers else replace the call by their own softmax attention in evaluation.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Attend.

        Args:
            query: (B, Lq, D) or (Lq, B, D), or (Lq, D) without a batch.
            key: like it, of length Lk; other lengths than the query's only with a core that claims
                `Facts.cross`.
            value: like the key.
            key_padding_mask: (B, Lk), or (Lk,) without a batch: True or -inf = padding, as torch
                has it.
            need_weights: must be False: a core has no weights to show.
            attn_mask: not taken, except with `is_causal` and a causal core.
            average_attn_weights: without effect.
            is_causal: `attn_mask` is the causal one.

        Returns:
            the output, shaped like the query, and None.

        Raises:
            PluginError: weights or a mask are asked for, or the core does not take these lengths.
        """
        if need_weights:
            raise PluginError(
                "need_weights: an attention core has no weights to show; use need_weights=False"
            )
        if attn_mask is not None and not is_causal:
            raise PluginError(
                "attn_mask: an attention core takes no mask but key_padding_mask; "
                "a causal one is built so"
            )
        itself = query is key
        batched = query.dim() == 3
        turn = batched and not self.batch_first
        query, key, value = (
            tokens.transpose(0, 1) if turn else tokens if batched else tokens[None]
            for tokens in (query, key, value)
        )
        keep = None
        if key_padding_mask is not None:
            keep = _kept(key_padding_mask if batched else key_padding_mask[None])
        q, k, v = self._heads(query, key, value)
        mixed = as_output(
            self.core(q, k, v, query_keep=keep if itself else None, key_keep=keep)
        ).out
        out = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return (out.transpose(0, 1) if turn else out if batched else out[0]), None

    def _heads(self, *tokens: Tensor) -> list[Tensor]:
        """Queries, keys and values (B, H, L, D / H) of tokens (B, L, D)."""
        weights = self.in_proj_weight.chunk(3)
        if self.in_proj_bias is None:
            biases = (None,) * 3
        else:
            biases = self.in_proj_bias.chunk(3)
        return [
            F.linear(own, weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for own, weight, bias in zip(tokens, weights, biases, strict=True)
        ]


def _kept(mask: Tensor) -> Tensor:
    """True = real token, of a mask that has True or -inf at padding."""
    if mask.is_floating_point():
        return mask == 0
    return ~mask
