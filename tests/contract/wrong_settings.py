"""Mixers that are wrong only with other parameters, widths or lengths than most tests give them, in
a second layer alone, or with one sample.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from right import Handed, Pooled, RunningMean
from torch import Tensor, nn

from subquad.nn import MixerOutput
from subquad.plugin import Facts, MixerConfig


class AtItsBounds(Pooled):
    """At a bound of its parameter that is allowed it gives no numbers."""

    class Config(MixerConfig):
        temperature: float = Field(1.0, ge=0.0, le=2.0)

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.temperature = config.temperature

    def mix(self, x, keep):
        return super().mix(x / self.temperature, keep)


class SeesWithSwitch(RunningMean):
    """A switch, off by default, adds the mean of all tokens, also to a causal mixer."""

    class Config(MixerConfig):
        offset: bool = False

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.offset = config.offset

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        return out + x.mean(1, keepdim=True) if self.offset else out


class EvenKernel(Pooled):
    """An even number of taps gives a token more."""

    facts = Facts(padding_invariant=True)

    class Config(MixerConfig):
        taps: int = Field(3, ge=1, le=1000)

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.around = nn.Conv1d(site.dim, site.dim, config.taps, padding=config.taps // 2)

    def mix(self, x, keep):
        real = x.masked_fill(~keep[..., None], 0.0)
        return super().mix(x, keep) + self.around(real.mT).mT


class DropsInEvaluation(Pooled):
    """Its dropout, off by default, knows no evaluation."""

    class Config(MixerConfig):
        dropout: float = Field(0.0, ge=0.0, lt=1.0)

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.dropout = config.dropout

    def mix(self, x, keep):
        return nn.functional.dropout(super().mix(x, keep), self.dropout)


class Neighbours(Pooled):
    """A share of the token before, none by default, which claims about order do not know."""

    class Config(MixerConfig):
        share: float = Field(0.0, ge=0.0, le=1.0)

    facts = Facts(permutation_equivariant=True)

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.share = config.share

    def mix(self, x, keep):
        before = nn.functional.pad(x, (0, 0, 1, -1))
        return super().mix(x + self.share * before, keep)


class OneHead(Pooled):
    """Spreads numbers over its heads, of which one is too few."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.spread = torch.linspace(1.0, 2.0, site.num_heads).var().item()

    def mix(self, x, keep):
        return super().mix(x, keep) * self.spread


class PrefixSeesAll(RunningMean):
    """Class tokens see all tokens, also of a causal mixer."""

    caches = False  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.prefix = site.num_prefix_tokens

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        front = torch.arange(x.shape[1], device=x.device)[:, None] < self.prefix
        return torch.where(front, out[:, -1:], out)


class TakesCarry(Handed):
    """Its second layer takes what the first one handed on for granted."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.is_first = site.layer_index == 0

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        if self.is_first:
            return super().forward(x, keep=keep)
        return super().forward(x, keep=keep, carry=1 * carry)


class SqueezesCache(RunningMean):
    """A cache of one sample loses its first axis."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return out, {**cache, "total": cache["total"].squeeze(0)}

    def step(self, x: Tensor, cache: Any):
        out, cache = super().step(x, cache)
        return out, {**cache, "total": cache["total"].squeeze(0)}


class KeepsProduct(Pooled):
    """Keeps a product of its weights in evaluation, also when others are loaded."""

    kept: Tensor | None = None

    def train(self, mode: bool = True):
        self.kept = None if mode else self.kept
        return super().train(mode)

    def mix(self, x, keep):
        if self.training or self.kept is None:
            self.kept = self.score.weight.square().mean()
        scale = self.kept
        if self.training or torch.is_grad_enabled():
            self.kept = None
        return super().mix(x, keep) * scale.to(x.device)


SETTINGS: tuple[tuple[type, set[str]], ...] = (
    (AtItsBounds, {"parameter-values"}),
    (SeesWithSwitch, {"parameter-values"}),
    (EvenKernel, {"parameter-values"}),
    (DropsInEvaluation, {"parameter-values"}),
    (Neighbours, {"parameter-values"}),
    (OneHead, {"other-sizes"}),
    (PrefixSeesAll, {"causal-outputs"}),
    (TakesCarry, {"carry"}),
    (SqueezesCache, {"cache-beams"}),
    (KeepsProduct, {"state-round-trip"}),
)
