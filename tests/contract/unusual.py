"""Mixers whose numbers go wrong where few look, and right ones of unusual style beside them.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from typing import Any

import torch
from right import Mean, Pooled
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subquad.plugin import Facts

TABLES: dict[int, Tensor] = {}
"""By length alone."""
MEMORY: dict[Any, Tensor] = {}


class Changed(Pooled):
    """Its output goes through a function."""

    facts = Facts(padding_invariant=True)

    def change(self, out: Tensor) -> Tensor:
        return out

    def mix(self, x, keep):
        return self.change(super().mix(x, keep))


class RoundsUntracked(Changed):
    def change(self, out: Tensor) -> Tensor:
        return out if torch.is_grad_enabled() else out.bfloat16().to(out.dtype)


class ExpBeforeMask(Pooled):
    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        weights = scores.exp() * keep
        return weights / weights.sum(1, keepdim=True).clamp_min(1e-9)


class SquaresFromMean(Pooled):
    """Right: takes the mean away first."""

    def mix(self, x, keep):
        apart = x - x.mean(-1, keepdim=True)
        return super().mix(apart / (self.spread(x) + 1e-3).sqrt(), keep)

    def spread(self, x: Tensor) -> Tensor:
        return x.var(-1, keepdim=True, unbiased=False)


class SquaresOfMean(SquaresFromMean):
    def spread(self, x: Tensor) -> Tensor:
        return x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()


class TableOfLength(Changed):
    """Its table holds the width of whoever came first."""

    def change(self, out: Tensor) -> Tensor:
        length, width = out.shape[1:]
        if length not in TABLES:
            TABLES[length] = torch.arange(length, device=out.device)[:, None] / width
        return out + TABLES[length].to(out)


class IgnoresOne(Mean):
    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return super().mean(value, keep if (~keep).sum() > 1 else torch.ones_like(keep))


class RootOfSquares(Pooled):
    """A norm whose gradient at a token of zeros is none."""

    def mix(self, x, keep):
        size = x.square().sum(-1, keepdim=True).sqrt()
        return super().mix(x, keep) + x / (1 + size)


class ListOfLengths(Changed):
    """A table grows by a row for each length that is new."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.lengths: list[int] = []

    def change(self, out: Tensor) -> Tensor:
        if out.shape[1] not in self.lengths:
            self.lengths.append(out.shape[1])
        return out


class HalfWeights(Pooled):
    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.gate = nn.Parameter(torch.ones(site.dim, dtype=torch.bfloat16))

    def mix(self, x, keep):
        return super().mix(x, keep) * self.gate.to(x)


class HalfInside(Pooled):
    def mix(self, x, keep):
        return super().mix(x, keep) + x @ self.value.weight.half().to(x)


class Waves(Pooled):
    """Complex weights, of which the imaginary part counts."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.waves = nn.Parameter(torch.randn(site.dim, site.dim, dtype=torch.complex64) / 4)

    def forward(self, x, *, keep=None, carry=None):
        turned = (x.to(self.waves.dtype) @ self.waves).imag
        return super().forward(x, keep=keep) + turned.to(x.dtype)


class SeesInWaves(Waves):
    """Sees padding by the imaginary part alone."""

    def forward(self, x, *, keep=None, carry=None):
        return Pooled.forward(self, x, keep=keep) + super().forward(x).mean(1, keepdim=True)


class Cached(Changed):
    """A table in a buffer, beside it how far that goes, made of a weight that is frozen."""

    facts = Facts()
    table: Tensor

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.rates = nn.Parameter(torch.logspace(0, -2, site.dim), requires_grad=False)
        self.register_buffer("table", torch.zeros(1 << 16, site.dim), persistent=False)
        self.reaches = 0

    def change(self, out: Tensor) -> Tensor:
        length = out.shape[1]
        if length > self.reaches:
            places = torch.arange(length, device=out.device)[:, None] * self.rates
            self.table[:length] = places.cos()
            self.reaches = length
        return out * self.table[:length].to(out)


class Redropped(Pooled):
    """Dropout where a checkpoint computes once more; nobody can copy it."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(checkpoint(self._dropped, scores, use_reentrant=False), keep)  # pyright: ignore

    def _dropped(self, scores: Tensor) -> Tensor:
        return (nn.functional.dropout(scores.tanh(), 0.2, self.training) * scores).sin()

    def __deepcopy__(self, memo: Any):
        raise TypeError("cannot be copied")


class SingleAlone(Pooled):
    def mix(self, x, keep):
        if x.dtype == torch.float64:
            raise TypeError("takes float32")
        return super().mix(x, keep)


class Strided(Changed):
    """Takes what it is given for contiguous where there is no mask."""

    def forward(self, x, *, keep=None, carry=None):
        _, length, dim = x.shape
        seen = x.as_strided(x.shape, (length * dim, dim, 1)) if keep is None else x
        return super().forward(x, keep=keep) + seen


class FrozenBelow(Pooled):
    """Its score is not trained where its tokens need no gradient."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(scores if self.below else scores.detach(), keep)

    def mix(self, x, keep):
        self.below = x.requires_grad
        return super().mix(x, keep)


class Reused(Changed):
    """Without gradients its outputs lie in one memory."""

    def change(self, out: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return out
        return MEMORY.setdefault(out.shape, out).copy_(out)


class Ranked(Pooled):
    """The first of equal tokens is marked."""

    def mix(self, x, keep):
        return super().mix(x, keep) + x.argsort(1, stable=True).argsort(1)


class CountsInHalf(Pooled):
    """A running sum in the format of autocast."""

    facts = Facts(causal="always")

    def mix(self, x, keep):
        total, sums = 0, []
        for token in self.value(x).unbind(1):
            total = total + token.sigmoid()
            sums.append(total)
        return torch.stack(sums, 1).to(x.dtype) / x.shape[1] + 0 * self.score(x)


class SeededTable(Changed):
    """A table for each length, of the numbers that the first mixer drew."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.register_buffer("drawn", torch.randn(site.dim))

    def change(self, out: Tensor) -> Tensor:
        key = (out.shape[1], out.dtype)
        return out + MEMORY.setdefault(key, self.drawn.clone())


MISSED: dict[type, str] = {
    RoundsUntracked: "determinism",
    ExpBeforeMask: "padding-content",
    SquaresOfMean: "precision-fp32",
    TableOfLength: "process-kept",
    IgnoresOne: "padding-content",
    RootOfSquares: "lengths",
    ListOfLengths: "state-registered",
    HalfWeights: "parameters-used",
    HalfInside: "precision-fp32",
    SeesInWaves: "padding-content",
    Strided: "strides",
    FrozenBelow: "parameters-used",
    Reused: "inputs-kept",
    Ranked: "permutation",
    CountsInHalf: "precision-bf16",
    SeededTable: "process-kept",
}
"""Wrong ones, and the check that says so."""

UNUSUAL = (SquaresFromMean, Waves, Cached, Redropped, SingleAlone)
"""Right ones."""
