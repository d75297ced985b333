"""Further mixers without a fault, of kinds that a check could take for one: random in training,
branching on numbers, recurrent, stateful, drawn when built.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from right import Attention, Convolution, Mean, Pooled, RunningMean, Window, ones
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Dropping(RunningMean):
    """Dropout by a module before the sum and by a function behind it."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, *, keep=None, carry=None):
        return F.dropout(super().forward(self.dropout(x), keep=keep), 0.1, self.training)


class DroppingWeights(Attention):
    """Dropout inside torch's attention."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        keep = masks["key_keep"]
        mask = None if keep is None else torch.where(keep, 0.0, -1e9).to(q.dtype)[:, None, None]
        return F.scaled_dot_product_attention(q, k, v, mask, 0.1 if self.training else 0.0)


class Noisy(Pooled):
    """Noise of its own on the scores in training."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(
            scores + 0.1 * torch.randn_like(scores) if self.training else scores, keep
        )


class Recurrent(TokenMixer):
    """A gated recurrence, token by token, with its state as decode cache."""

    Config = MixerConfig
    facts = Facts(causal="always", padding_invariant=True)
    caches = True  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: Any, site: Any):
        super().__init__()
        self.gates = nn.Linear(site.dim, 2 * site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.prefill(x, keep=keep)[0]

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Any]:
        keep = ones(x) if keep is None else keep
        state, outs = torch.zeros_like(x[:, 0]), []
        # x[:, i] would have a backward pass of L each
        for token, real in zip(x.unbind(1), keep.unbind(1), strict=True):
            state = torch.where(real[:, None], self._next(token, state), state)
            outs.append(state)
        return torch.stack(outs, 1), {"state": state}

    def step(self, x: Tensor, cache: Any) -> tuple[Tensor, Any]:
        state = self._next(x, cache["state"])
        return state, {"state": state}

    def _next(self, x: Tensor, state: Tensor) -> Tensor:
        gate, value = self.gates(x).chunk(2, -1)
        return torch.lerp(state, value.to(state.dtype), torch.sigmoid(gate).to(state.dtype))


class ShortConvolution(TokenMixer):
    """A causal convolution over four tokens, torch's own, with the last three as decode cache."""

    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config: Any, site: Any):
        super().__init__()
        self.filter = nn.Conv1d(site.dim, site.dim, 4, groups=site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.filter(F.pad(x.mT, (3, 0))).mT


class Selecting(TokenMixer):
    """Each token plus the mean of the eight real tokens with the largest first number."""

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config: Any, site: Any):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        keep = ones(x) if keep is None else keep
        scores = x[..., 0].detach().masked_fill(~keep, -torch.inf)
        chosen = scores.topk(min(8, x.shape[1]), 1).indices
        counted = keep.gather(1, chosen)[..., None]
        picked = self.value(x.gather(1, chosen[..., None].expand(-1, -1, x.shape[2]))) * counted
        return self.value(x) + picked.sum(1, keepdim=True) / counted.sum(1, keepdim=True).clamp_min(
            1
        )


class Branching(Mean):
    """Another way where nothing is padded, found by looking at the mask; and a buffer that its
    device fixes.
    """

    rates: Tensor

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.register_buffer("rates", torch.linspace(0.5, 1.5, site.dim))

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        value = value * self.rates.to(value.dtype)
        return super().mean(value, keep) if not bool(keep.all()) else value.mean(1)


class Flipping(Convolution):
    """A convolution by FFT in both directions."""

    facts = replace(Convolution.facts, causal="never")

    def forward(self, x, *, keep=None, carry=None):
        behind = super().forward(x.flip(1), keep=None if keep is None else keep.flip(1))
        return super().forward(x, keep=keep) + behind.flip(1)


class Normed(Window):
    """Batch statistics, kept for evaluation."""

    facts = Facts(stateful=True)
    scale: Tensor

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.register_buffer("scale", torch.ones(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x / self.scale.clone().to(x.dtype), keep=keep)
        if self.training:
            self.scale.lerp_(x.detach().abs().mean((0, 1)).to(self.scale.dtype), 0.1)
        return out


class Checkpointed(Pooled):
    """Computes its forward pass again for the backward pass."""

    def mix(self, x, keep):
        return checkpoint(super().mix, x, keep, use_reentrant=False)


class Chunked(TokenMixer):
    """Softmax attention within chunks of 16 tokens."""

    Config = MixerConfig
    facts = Facts(causal="optional")
    CHUNK = 16

    def __init__(self, config: Any, site: Any):
        super().__init__()
        self.causal = site.causal
        self.qkv = nn.Linear(site.dim, 3 * site.dim)

    def forward(self, x, *, keep=None, carry=None):
        length, keep = x.shape[1], ones(x) if keep is None else keep
        more = -length % self.CHUNK
        cut = F.pad(self.qkv(x), (0, 0, 0, more)).unflatten(1, (-1, self.CHUNK))
        real = F.pad(keep, (0, more)).unflatten(1, (-1, 1, self.CHUNK))
        earlier = torch.ones(self.CHUNK, self.CHUNK, dtype=torch.bool, device=x.device).tril()
        allowed = real & earlier if self.causal else real
        q, k, v = cut.chunk(3, -1)
        scores = (q @ k.mT / x.shape[2] ** 0.5).masked_fill(~allowed, -1e9)
        return (torch.softmax(scores, -1) @ v).flatten(1, 2)[:, :length]


APT = (
    Dropping,
    DroppingWeights,
    Noisy,
    Recurrent,
    ShortConvolution,
    Selecting,
    Branching,
    Flipping,
    Normed,
    Checkpointed,
    Chunked,
)
