"""Attention around any core: as a mixer with its projections, or with the calls and the weights of
`torch.nn.MultiheadAttention`.

Shape letters: B batch, L length, D model width, H heads, E head width.
Masks are bool, True = real token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn.mixer import (
    AttentionCore,
    Cache,
    MixerOutput,
    ParameterRule,
    TokenMixer,
    as_output,
)
from subquad.plugin import AttentionConfig, Site

_NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "rms": nn.RMSNorm}


class AttentionMixer(TokenMixer):
    """Attention around a core: query, key, value and output projections, query and key norms,
    rotary positions.

    Args:
        core: the attention core.
        site: where it stands.
        config: the projections' parameters; their defaults where None.
    """

    def __init__(self, core: AttentionCore, site: Site, config: AttentionConfig | None = None):
        super().__init__()
        config = config or AttentionConfig()
        self.num_heads = site.num_heads
        self.crosses = site.role == "cross"
        self.core = core
        projection = partial(nn.Linear, site.dim, site.dim, bias=config.bias)
        self.query = projection()
        self.key = projection()
        self.value = projection()
        self.out = projection()
        norm = _NORMS[config.qk_norm]
        self.query_norm = norm(site.head_dim)
        self.key_norm = norm(site.head_dim)
        self.rotary = config.rotary
        self.loss_weights = core.loss_weights

    def forward(
        self,
        x: Tensor,
        *,
        keep: Tensor | None = None,
        carry: Any = None,
        context: Tensor | None = None,
        context_keep: Tensor | None = None,
    ) -> MixerOutput:
        """Self-attention, or cross-attention where a context is given.

        Args:
            x: (B, Lq, D), the queries' tokens.
            keep: (B, Lq) bool, True = real token.
            carry: not used.
            context: (B, Lk, D), the keys' and values' tokens; x itself where None.
            context_keep: (B, Lk) bool, True = real token.

        Raises:
            PluginError: there is a context at a site with another role than `cross`.
        """
        if context is None:
            context = x
            context_keep = keep
        elif not self.crosses:
            raise PluginError("another sequence can be seen at a site with the role cross only")
        q = self._queries(x, _positions(x, keep))
        k, v = self._keys_and_values(context, _positions(context, context_keep))
        mixed = as_output(self.core(q, k, v, query_keep=keep, key_keep=context_keep))
        return MixerOutput(self._joined(mixed.out), mixed.losses, mixed.carry)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        rules = self.core.parameter_rules()
        return {f"core.{name}": rule for name, rule in rules.items()}

    @property
    def caches(self) -> bool:
        return self.core.caches

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> Cache:
        k, v = self._keys_and_values(context, _positions(context, keep))
        return self.core.memory(k, v, keep=keep)

    def prefill(
        self, x: Tensor, *, keep: Tensor | None = None, memory: Cache = None
    ) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`; `memory` is that of another sequence, None for
        self-attention.
        """
        positions = _positions(x, keep)
        q = self._queries(x, positions)
        if keep is None:
            batch, length, _ = x.shape
            lengths = torch.full((batch,), length, device=x.device)
        else:
            lengths = keep.sum(1)
        cache: dict[str, Cache] = {"position": lengths}
        if memory is None:
            k, v = self._keys_and_values(x, positions)
            out, cache["core"] = self.core.prefill(q, k, v, keep=keep)
        else:
            out = as_output(self.core.read(q, memory, keep=keep)).out
        return self._joined(out), cache

    def step(self, x: Tensor, cache: Cache, *, memory: Cache = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`; `memory` is that of another sequence, None for self-attention."""
        token = x[:, None]
        position = cache["position"]
        after = {"position": position + 1}
        positions = position[:, None]
        q = self._queries(token, positions)
        if memory is not None:
            return self._joined(as_output(self.core.read(q, memory)).out).squeeze(1), after
        k, v = self._keys_and_values(token, positions)
        out, after["core"] = self.core.step(q.squeeze(2), k.squeeze(2), v.squeeze(2), cache["core"])
        return self.out(out.flatten(1)), after

    def _queries(self, x: Tensor, positions: Tensor) -> Tensor:
        return self._turned(self.query_norm(self._split(self.query(x))), positions)

    def _keys_and_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        k = self._turned(self.key_norm(self._split(self.key(x))), positions)
        return k, self._split(self.value(x))

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.rotary:
            return rotate(x, positions)
        return x

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, E)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _joined(self, heads: Tensor) -> Tensor:
        """(B, H, L, E) to (B, L, D), through the output projection."""
        return self.out(heads.transpose(1, 2).flatten(2))


def _positions(x: Tensor, keep: Tensor | None) -> Tensor:
    """(B, L): each token's place among the real ones, so that padding in front moves nothing."""
    if keep is None:
        batch, length, _ = x.shape
        return torch.arange(length, device=x.device).expand(batch, length)
    return (keep.long().cumsum(1) - 1).clamp_min(0)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions: channel i and channel E/2 + i are turned together by position / 10000^(2i /
    E).

    Args:
        x: (B, H, L, E), E even.
        positions: (B, L), whole numbers.

    Returns:
        (B, H, L, E).

    Reference: Su et al. 2021, RoFormer, Eq. 15; the pairing of halves is that of GPT-NeoX.
    """
    left, right = x.chunk(2, -1)
    half = left.shape[-1]
    rates = 10000.0 ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = positions[:, None, :, None].double() * rates
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


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
        turned = batched and not self.batch_first
        tokens = [query, key, value]
        if turned:
            tokens = [each.transpose(0, 1) for each in tokens]
        elif not batched:
            tokens = [each[None] for each in tokens]
        q, k, v = self._heads(tokens)
        keep = _kept(key_padding_mask)
        mixed = as_output(self.core(q, k, v, query_keep=keep if itself else None, key_keep=keep))
        out = self.out_proj(mixed.out.transpose(1, 2).flatten(2))
        if turned:
            out = out.transpose(0, 1)
        elif not batched:
            out = out[0]
        return out, None

    def _heads(self, tokens: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values (B, H, L, D / H) of tokens (B, L, D)."""
        weights = self.in_proj_weight.chunk(3)
        biases: Sequence[Tensor | None] = (None, None, None)
        if self.in_proj_bias is not None:
            biases = self.in_proj_bias.chunk(3)
        heads = []
        for own, weight, bias in zip(tokens, weights, biases, strict=True):
            apart = F.linear(own, weight, bias).unflatten(-1, (self.num_heads, -1))
            heads.append(apart.transpose(1, 2))
        return heads


def _kept(mask: Tensor | None) -> Tensor | None:
    """(B, L), True = real token, of a mask (B, L) or (L,) that has True or -inf at padding."""
    if mask is None:
        return None
    rows: Tensor = torch.atleast_2d(mask)
    if rows.is_floating_point():
        return rows == 0
    return ~rows
