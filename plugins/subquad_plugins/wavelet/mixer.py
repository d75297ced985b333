"""Wavelet mixing as a token mixer, and the branch that MDFWA shares: bands, their weights,
projection.

X~ = IDWT({alpha_j d_j}) P^T, or X~ = (sum_j alpha_j d_j) P^T with undecimated one-sided bands,
which is causal.

The transform sums in fp32 at least, also under autocast, whose format its tokens have. A padded
sample is transformed at its own length: its real tokens are moved to the front, the extension
begins behind the last of them, and the result is moved back.

Letters: B batch, L length, D model width, J levels.
Reference: MDFWA, Sec. 3.3 and 5.2. Departures: the paper's P of shape d x JM and its claimed
product do not fit together; P is d x d and acts after the inverse transform, which the paper
mentions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import Cache, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.places import places_of, take_tokens, to_front
from subquad_plugins.numerics.tensors import precast, wide
from subquad_plugins.wavelet import Config, WaveletConfig
from subquad_plugins.wavelet.atrous import atrous_mix, atrous_step, remember, weighted_sum
from subquad_plugins.wavelet.dwt import wavelet_mix
from subquad_plugins.wavelet.filters import filter_bank


class WaveletBranch(nn.Module):
    """Bands and their weights, without the projection.

    Args:
        config: wavelet, level, mode, scale_weights.
        atrous: undecimated and one-sided.
        include_approx: whether the approximation is weighed, or dropped.
    """

    scale_logits: nn.Parameter | None

    def __init__(self, config: WaveletConfig, *, atrous: bool, include_approx: bool):
        super().__init__()
        self.bank = filter_bank(config.filter_name(atrous))
        self.level = config.level
        self.mode = config.mode
        self.atrous = atrous
        self.include_approx = include_approx
        bands = config.level + include_approx
        if config.scale_weights == "adaptive":
            self.scale_logits = nn.Parameter(torch.zeros(bands))
        else:
            self.scale_logits = None

    def weights(self, x: Tensor) -> Tensor:
        """alpha, (J,) or (J+1,), the finest details first and the approximation last, in the
        dtype of `x`, fp32 at least.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        if self.scale_logits is None:
            bands = self.level + self.include_approx
            return torch.full((bands,), 1 / bands, dtype=dtype, device=x.device)
        return torch.softmax(self.scale_logits.to(dtype), 0)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Mix tokens of any number format, in fp32 at least.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True = real token.

        Returns:
            (B, L, D) in the dtype of x, zero at padding.
        """
        if keep is None:
            return self._mix(x, None)
        places = places_of(keep)
        mixed = self._mix(to_front(x, keep, places), places.lengths)
        return take_tokens(mixed, places.rank).masked_fill(~keep[..., None], 0.0)

    def _mix(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Of each sample the first `lengths` tokens, (B,); behind them the one-sided transform
        needs no end.
        """
        weights = self.weights(x)
        if self.atrous:
            mixed = atrous_mix(wide(x), weights, self.bank, include_approx=self.include_approx)
            return mixed.to(x.dtype)
        return wavelet_mix(
            x, weights, self.bank, self.mode, include_approx=self.include_approx, lengths=lengths
        )

    def remember(self, x: Tensor, lengths: Tensor) -> list[Tensor]:
        """What `step` needs after the first `lengths` tokens, (B,), of x, (B, L, D)."""
        return remember(x, self.bank, self.level, lengths)

    def step(self, x: Tensor, memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The next token, (B, D) to (B, D), and the new memory; for the one-sided transform."""
        bands, memory = atrous_step(x, memory, self.bank)
        return weighted_sum(bands, self.weights(x), self.include_approx), memory


class Wavelet(TokenMixer):
    """Wavelet mixing.

    Args:
        config: see `Config`.
        site: where it stands; a causal mixer uses the one-sided transform.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.causal = site.causal
        self.bands = WaveletBranch(
            config,
            atrous=site.causal or config.transform == "atrous",
            include_approx=config.include_approx,
        )
        self.project = nn.Linear(site.dim, site.dim, bias=False)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        x = precast(x)
        with torch.autocast(x.device.type, enabled=False):
            mixed = self.bands(x, keep)
        return self.project(mixed)

    @property
    def caches(self) -> bool:
        return self.causal

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        x = precast(x)
        with torch.autocast(x.device.type, enabled=False):
            memory = self.bands.remember(wide(x), lengths)
        return self(x, keep=keep), memory

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        x = precast(x)
        with torch.autocast(x.device.type, enabled=False):
            mixed, cache = self.bands.step(wide(x), cache)
        return self.project(mixed.to(x.dtype)), cache
