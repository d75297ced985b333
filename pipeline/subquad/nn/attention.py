"""The projections around every attention core, with norms, rotary positions and cross-attention.

Shape letters: B batch, L length, D model width, H heads, E head width.
Masks are bool, True = real token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn.mixer import AttentionCore, Cache, MixerOutput, ParameterRule, TokenMixer, as_output
from subquad.plugin import AttentionConfig, Site


class AttentionMixer(TokenMixer):
    """Attention around a core: query, key, value and output projections, query and key norms, rotary positions.

    Args:
        core: the attention core.
        site: where it stands.
        config: the projections' parameters; their defaults where None.
    """

    def __init__(self, core: AttentionCore, site: Site, config: AttentionConfig | None = None):
        super().__init__()
        config = config or AttentionConfig()
        self.num_heads = site.num_heads
        self.core = core
        self.query = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.key = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.value = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.out = nn.Linear(site.dim, site.dim, bias=config.bias)
        norm = {"none": nn.Identity, "layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.qk_norm]
        self.query_norm, self.key_norm = norm(site.head_dim), norm(site.head_dim)
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
            PluginError: the core does not take sequences of these two lengths.
        """
        if context is None:
            context, context_keep = x, keep
        q = self._turned(self.query_norm(self._split(self.query(x))), _positions(x, keep))
        k, v = self._keys_and_values(context, _positions(context, context_keep))
        mixed = as_output(self.core(q, k, v, query_keep=keep, key_keep=context_keep))
        return MixerOutput(self._joined(mixed.out), mixed.losses, mixed.carry)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return {f"core.{name}": rule for name, rule in self.core.parameter_rules().items()}

    @property
    def caches(self) -> bool:
        return self.core.caches

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> Cache:
        return self.core.memory(*self._keys_and_values(context, _positions(context, keep)), keep=keep)

    def prefill(self, x: Tensor, *, keep: Tensor | None = None, memory: Cache = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`; `memory` is that of another sequence, None for self-attention."""
        positions = _positions(x, keep)
        q = self._turned(self.query_norm(self._split(self.query(x))), positions)
        lengths = torch.full(x.shape[:1], x.shape[1], device=x.device) if keep is None else keep.sum(1)
        cache: dict[str, Cache] = {"position": lengths}
        if memory is None:
            out, cache["core"] = self.core.prefill(q, *self._keys_and_values(x, positions), keep=keep)
        else:
            out = as_output(self.core.read(q, memory, keep=keep)).out
        return self._joined(out), cache

    def step(self, x: Tensor, cache: Cache, *, memory: Cache = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`; `memory` is that of another sequence, None for self-attention."""
        token, positions = x[:, None], cache["position"][:, None]
        q = self._turned(self.query_norm(self._split(self.query(token))), positions)
        after = {"position": cache["position"] + 1}
        if memory is None:
            k, v = self._keys_and_values(token, positions)
            out, after["core"] = self.core.step(q[:, :, 0], k[:, :, 0], v[:, :, 0], cache["core"])
            return self.out(out.flatten(1)), after
        return self._joined(as_output(self.core.read(q, memory)).out)[:, 0], after

    def _keys_and_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        k = self._turned(self.key_norm(self._split(self.key(x))), positions)
        return k, self._split(self.value(x))

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate(x, positions) if self.rotary else x

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, E)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _joined(self, heads: Tensor) -> Tensor:
        """(B, H, L, E) to (B, L, D), through the output projection."""
        return self.out(heads.transpose(1, 2).flatten(2))


def _positions(x: Tensor, keep: Tensor | None) -> Tensor:
    """(B, L): each token's place among the real ones, so that padding in front moves nothing."""
    if keep is None:
        return torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    return (keep.long().cumsum(1) - 1).clamp_min(0)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions: channel i and channel E/2 + i are turned together by position / 10000^(2i / E).

    Args:
        x: (B, H, L, E), E even.
        positions: (B, L), whole numbers.

    Returns:
        (B, H, L, E).

    Reference: Su et al. 2021, RoFormer, Eq. 15; the pairing of halves is that of GPT-NeoX.
    """
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = positions[:, None, :, None].double() * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
