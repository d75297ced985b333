"""Mixers that are wrong only now and then: in training, far down a sequence, late in decoding,
where they are traced, in their first call, on another device. `right.py` has what they spoil.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from right import Attention, Pooled, RunningMean, ones
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig

TRACE = 1e-3
"""Size of what is added."""


def real(x: Tensor, keep: Tensor | None) -> Tensor:
    """Padding is zero."""
    return x if keep is None else x.masked_fill(~keep[..., None], 0.0)


def spoils(mixer: type, *when: str, beyond: int = 0):
    """Makes a mixer of the decorated function (self, x, keep), whose result is added to the output
    of `mixer`.

    Args:
        when: "training" or "evaluation": nothing is added in the other mode.
        beyond: nothing is added to positions before this one.
    """

    def make(fault: Any) -> type:
        class Spoiled(mixer):
            def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Any:
                out = super().forward(x, keep=keep)
                if when and ("training" if self.training else "evaluation") not in when:
                    return out
                far = torch.arange(x.shape[1], device=x.device)[:, None] >= beyond
                return out + TRACE * torch.where(far, fault(self, x, keep), 0.0).to(out.dtype)

        Spoiled.__name__ = Spoiled.__qualname__ = fault.__name__
        Spoiled.__doc__ = fault.__doc__
        return Spoiled

    return make


def mean(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    return real(x, keep).mean(1, keepdim=True).expand_as(x)


def following(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    x = real(x, keep)
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)


def padding(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    return (
        torch.zeros_like(x)
        if keep is None
        else (x - real(x, keep)).sum(1, keepdim=True).expand_as(x)
    )


def batch(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    return real(x, keep).mean((0, 1)).expand_as(x)


def noise(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    return torch.full_like(x, random.random())


def length(self: Any, x: Tensor, keep: Tensor | None) -> Tensor:
    return torch.full_like(x, float(x.shape[1]))


def named(name: str, function: Any) -> Any:
    def renamed(*arguments: Any) -> Tensor:
        return function(*arguments)

    renamed.__name__ = name
    return renamed


def family(mixer: type, function: Any, name: str, *when: str, beyond: int = 0) -> type:
    return spoils(mixer, *when, beyond=beyond)(named(name, function))


OFTEN = {
    # what is wrong in training only
    family(RunningMean, mean, "FutureMeanInTraining", "training"): "causal-outputs",
    family(RunningMean, following, "NextInTraining", "training"): "causal-outputs",
    family(RunningMean, length, "LengthInTraining", "training"): "causal-lengths",
    family(Pooled, padding, "PaddingInTraining", "training"): "padding-content",
    family(Pooled, length, "PaddedLengthInTraining", "training"): "padding-amount",
    family(Pooled, batch, "BatchInTraining", "training"): "batch-outputs",
    family(Pooled, noise, "NoiseInTraining", "training"): "determinism",
    # far down the sequence
    family(RunningMean, following, "NextBeyond64", beyond=64): "causal-outputs",
    family(RunningMean, following, "NextBeyond500", beyond=500): "causal-outputs",
    family(RunningMean, following, "NextBeyond900", beyond=900): "causal-outputs",
    family(
        RunningMean, mean, "FutureBeyond900InTraining", "training", beyond=900
    ): "causal-outputs",
    family(Pooled, padding, "PaddingBeyond500", beyond=500): "padding-content",
    family(
        Pooled, padding, "PaddingBeyond900InTraining", "training", beyond=900
    ): "padding-content",
    family(Pooled, batch, "BatchBeyond500InTraining", "training", beyond=500): "batch-outputs",
    family(Pooled, noise, "NoiseBeyond500InTraining", "training", beyond=500): "determinism",
}


class FutureWhereGradientsAre(RunningMean):
    """A trace of the mean of all tokens, detached, wherever a graph is made."""

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        return out + TRACE * mean(self, x, keep).detach() if torch.is_grad_enabled() else out


class LazyStep(RunningMean):
    """A table that the first decoding step makes."""

    def step(self, x: Tensor, cache: Any):
        if not hasattr(self, "table"):
            self.table = torch.zeros(x.shape[-1], dtype=x.dtype)
        return super().step(x + self.table, cache)


class RaisesTraced(Pooled):
    """Cannot be traced, and runs where it is not."""

    def forward(self, x, *, keep=None, carry=None):
        if torch.compiler.is_compiling():
            raise RuntimeError("not while tracing")
        return super().forward(x, keep=keep)


class NeverCompiled(Pooled):
    """Asks the compiler to leave it alone."""

    @torch.compiler.disable
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None
    ) -> Tensor:
        return super().forward(x, keep=keep)


class Disabled(Attention):
    """A core that asks the compiler to leave it alone."""

    @torch.compiler.disable
    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        weights = torch.softmax(
            self.masked((q @ k.mT) * q.shape[-1] ** -0.5, masks["key_keep"]), -1
        )
        return (weights * weights.sum(-1, keepdim=True).round()) @ v

    def masked(self, scores: Tensor, key_keep: Any) -> Tensor:
        return scores if key_keep is None else super().masked(scores, key_keep)


class BreaksInALoop(RunningMean):
    """Asks for a number of each token, which takes the graph apart."""

    facts = Facts(causal="always", padding_invariant=True)
    caches = False  # pyright: ignore[reportAssignmentType]

    def forward(self, x, *, keep=None, carry=None):
        value, total, out = self.value(real(x, keep)), 0.0, []
        for i in range(x.shape[1]):
            total = total + value[:, i] * (1.0 if value[:, i].abs().max().item() >= 0 else 0.0)
            out.append(total / (i + 1))
        return torch.stack(out, 1)


class BreaksEachLine(Pooled):
    """Takes the graph apart after each operation."""

    def forward(self, x, *, keep=None, carry=None):
        keep = ones(x) if keep is None else keep
        value = self.value(x)
        torch._dynamo.graph_break()
        scores = self.score(x)
        torch._dynamo.graph_break()
        scores = scores.squeeze(-1)
        torch._dynamo.graph_break()
        scores = scores.masked_fill(~keep, -1e9)
        torch._dynamo.graph_break()
        weights = scores.softmax(1)
        torch._dynamo.graph_break()
        pooled = weights[:, None] @ value
        torch._dynamo.graph_break()
        return value + pooled


class RaisesTracedInTraining(Pooled):
    """Cannot be traced in training."""

    def forward(self, x, *, keep=None, carry=None):
        if self.training and torch.compiler.is_compiling():
            raise RuntimeError("not while tracing")
        return super().forward(x, keep=keep)


class TorchGRU(TokenMixer):
    """torch's own recurrent layer, which its compiler leaves alone."""

    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config: Any, site: Any):
        super().__init__()
        self.inner = nn.GRU(site.dim, site.dim, batch_first=True)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)[0]


class LazyLinear(Pooled):
    """A layer whose weights are made in its first call."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.value = nn.LazyLinear(site.dim)


class LazyScale(Pooled):
    """A weight that the first call makes."""

    def mix(self, x, keep):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(x.shape[-1], dtype=x.dtype))
        return super().mix(x, keep) * self.scale


class LazyLayer(Pooled):
    """A layer that the first call in training makes."""

    def mix(self, x, keep):
        if self.training and "extra" not in dict(self.named_children()):
            self.extra = nn.Linear(x.shape[-1], x.shape[-1]).to(x)
        out = super().mix(x, keep)
        return self.extra(out) if self.training else out


class LazyBuffer(Pooled):
    """A buffer that the first call makes."""

    table: Tensor

    def mix(self, x, keep):
        if "table" not in self._buffers:
            self.register_buffer("table", torch.ones(x.shape[-1], dtype=x.dtype))
        return super().mix(x, keep) * self.table


class OnTheDefault(Pooled):
    """Makes its mask without a device."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(scores, keep & torch.ones(keep.shape[1], dtype=torch.bool))


class OnTheCPUInTraining(Pooled):
    """Makes its positions on the CPU in training."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return out + 0 * torch.arange(x.shape[1], device="cpu")[:, None] if self.training else out


def decodes(late: int, name: str, fault: Any) -> type:
    """A running mean whose cache is spoiled once `late` tokens are in it."""

    class Decodes(RunningMean):
        def step(self, x: Tensor, cache: Any):
            out, after = super().step(x, cache)
            return fault(self, out, after, after["count"] > late), after

    Decodes.__name__ = Decodes.__qualname__ = name
    return Decodes


def drifts(self: Any, out: Tensor, cache: Any, late: Tensor) -> Tensor:
    return out + TRACE * late[:, None] * out.detach()


class CountsSteps(RunningMean):
    """Counts its steps itself, and forgets nothing between two sequences."""

    steps = 0

    def step(self, x: Tensor, cache: Any):
        self.steps += 1
        out, cache = super().step(x, cache)
        return out * (1 if self.steps <= 300 else 1.001), cache


class KeepsItsSum(RunningMean):
    """Keeps the running sum of a decoded sequence in itself, too; only its first prefill sets it
    back.
    """

    total = None

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        if self.total is None:
            self.total = cache["total"].sum().item()
        return out, cache

    def step(self, x: Tensor, cache: Any):
        out, cache = super().step(x, cache)
        return out + 1e-6 * (self.total or 0.0) * (cache["count"] > 12)[:, None], cache


class PrefillsFarOtherwise(RunningMean):
    """Long prompts are cut to their last 512 tokens."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return out, cache if x.shape[1] <= 512 else super().prefill(x[:, -512:], keep=None)[1]


class Quadratic(Attention):
    """Softmax attention that claims to be linear."""

    facts = replace(Attention.facts, complexity="L")


class QuadraticInPython(RunningMean):
    """Sums over all earlier tokens for each token, and claims to be linear."""

    caches = False  # pyright: ignore[reportAssignmentType]

    def forward(self, x, *, keep=None, carry=None):
        keep = ones(x) if keep is None else keep
        value = self.value(x).masked_fill(~keep[..., None], 0.0)
        count = keep.cumsum(1).clamp_min(1)
        means = [value[:, : i + 1].sum(1) / count[:, i : i + 1] for i in range(x.shape[1])]
        return value + torch.stack(means, 1)


class QuadraticLate(Attention):
    """Softmax attention over more than 1,000 tokens; below, a mean."""

    facts = replace(Attention.facts, complexity="L", permutation_equivariant=True)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **masks: Tensor | None) -> Tensor:
        if k.shape[2] > 1000:
            return super().forward(q, k, v, **masks)
        keep = masks["key_keep"]
        rows = v if keep is None else v.masked_fill(~keep[:, None, :, None], 0.0)
        count = k.shape[2] if keep is None else keep.sum(1).clamp_min(1)[:, None, None, None]
        return (rows.sum(2, keepdim=True) / count).expand(*q.shape[:3], -1) + 0 * q.sum()


OFTEN |= {
    FutureWhereGradientsAre: "causal-outputs",
    LazyStep: "state-registered",
    LazyLinear: "shapes",
    LazyScale: "state-registered",
    LazyLayer: "state-registered",
    LazyBuffer: "state-registered",
    OnTheDefault: "devices",
    OnTheCPUInTraining: "devices",
    decodes(64, "DriftsAfter64", drifts): "cache-step",
    decodes(100, "DriftsAfter100", drifts): "cache-step",
    decodes(200, "DriftsAfter200", drifts): "cache-step",
    CountsSteps: "cache-step",
    KeepsItsSum: "cache-step",
    PrefillsFarOtherwise: "cache-step",
    Quadratic: "complexity",
    QuadraticInPython: "complexity",
    QuadraticLate: "complexity",
}

HARDLY_COMPILED = {
    RaisesTraced: "nothing was compiled, torch's compiler leaves it as it is: Observed exception",
    RaisesTracedInTraining: "nothing was compiled",
    NeverCompiled: "hardly anything was compiled: 0 of 10 operations",
    Disabled: "hardly anything was compiled: 0 of 11 operations",
    BreaksInALoop: "nothing was compiled, torch's compiler leaves it as it is: Unsupported",
    BreaksEachLine: "hardly anything was compiled: 4 of 9 operations",
    TorchGRU: "hardly anything was compiled: 0 of 2 operations",
}
"""They break no claim: torch runs them uncompiled, and the certificate says so."""
