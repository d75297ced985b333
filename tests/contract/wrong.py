"""Mixers that are each wrong in one way, and the checks that must say so (and no other check).

Many faults are made tiny (`FAINT`): too small for any check but the one that compares bit for bit.
Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from right import (
    Attention,
    Centred,
    Convolution,
    Crossing,
    Handed,
    InSingle,
    Mean,
    Placed,
    Pooled,
    RandomFeatures,
    RunningMean,
    Squared,
    Window,
)
from torch import Tensor, nn

from subquad.nn import MixerOutput, ParameterRule
from subquad.nn.kernels import Operation
from subquad.plugin import Facts

FAINT = 1e-11


def straight_through(x: Tensor) -> Tensor:
    """Zero, with the gradient of x."""
    return x - x.detach()


class WrongBackward(torch.autograd.Function):
    """The identity, whose backward pass is handed to a function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, backward: Any) -> Tensor:
        ctx.function = backward
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.function(grads[0]), None


class Widens(Pooled):
    """Returns float64 for float32."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return out if torch.is_autocast_enabled("cpu") else out.double()


class OneMore(Mean):
    """Counts one token more where there is a mask."""

    facts = Facts(permutation_equivariant=True)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        out, losses, _ = super().forward(x, keep=keep)
        return MixerOutput(out if keep is None else out * (1 + 1e-6), losses)


class Cleans(Mean):
    """Zeroes padding in the caller's tensor."""

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        if keep is not None:
            x.data.masked_fill_(~keep[..., None], 0.0)
        return super().forward(x, keep=keep)


class ScaledGradient(Pooled):
    """A backward pass written by hand that is 1 % too large."""

    def mix(self, x, keep):
        return WrongBackward.apply(super().mix(x, keep), lambda grad: 1.01 * grad)  # pyright: ignore


class ScaledInSingle(InSingle):
    """The same 10 % too large, beside a softmax in float32."""

    def forward(self, x, *, keep=None, carry=None):
        return WrongBackward.apply(super().forward(x, keep=keep), lambda grad: 1.1 * grad)  # pyright: ignore


class CutGradient(Mean):
    """The mean sends no gradient back."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return super().mean(value, keep).detach()

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        return {}

    loss_weights = {}  # noqa: RUF012


class SeesLater(RunningMean):
    """A trace of the mean of all tokens in the output."""

    def forward(self, x, *, keep=None, carry=None):
        real = x.detach() if keep is None else x.detach().masked_fill(~keep[..., None], 0.0)
        return super().forward(x, keep=keep) + FAINT * real.mean(1, keepdim=True)


class SeesNext(Window):
    """Off by one: the window holds the next token."""

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        return torch.cat([out[:, 1:], out[:, -1:]], 1)


class LaterGradient(RunningMean):
    """Outputs are causal; their gradient reaches later tokens."""

    def forward(self, x, *, keep=None, carry=None):
        real = x if keep is None else x.masked_fill(~keep[..., None], 0.0)
        return super().forward(x, keep=keep) + straight_through(FAINT * real.mean(1, keepdim=True))


class LaterWeightGradient(Window):
    """Outputs and gradients by tokens are causal; those by a weight know of later tokens."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.gate = nn.Parameter(torch.ones(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        level = 1e-7 * x.detach().mean(1, keepdim=True)
        return super().forward(x, keep=keep) * self.gate + straight_through(self.gate * level)


class KnowsLength(Window):
    """Divides positions by the length of the sequence."""

    def forward(self, x, *, keep=None, carry=None):
        place = torch.arange(x.shape[1], dtype=x.dtype) / x.shape[1]
        return super().forward(x, keep=keep) * (1 + place[:, None])


class PaddingShows(Mean):
    """A trace of what padding holds."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return super().mean(value, keep) + FAINT * value.detach().masked_fill(
            keep[..., None], 0.0
        ).mean(1)


class PaddedMean(Mean):
    """A mean over real and padded tokens alike."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return value.mean(1)


class PaddingGradient(Pooled):
    """Outputs leave padding alone; their gradient reaches it."""

    def mix(self, x, keep):
        return super().mix(x, keep) + straight_through(FAINT * x.mean(1, keepdim=True))


class PaddedLength(Mean):
    """The sum over real tokens, divided by the padded length."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return value.masked_fill(~keep[..., None], 0.0).sum(1) / value.shape[1]


class FromTheFront(Placed):
    """Positions counted from the front, padding or not: wrong with padding on the left only."""

    def forward(self, x, *, keep=None, carry=None):
        return x * self.table[: x.shape[1]]


class BatchShows(Pooled):
    """A trace of the other samples."""

    def mix(self, x, keep):
        real = x.detach().masked_fill(~keep[..., None], 0.0)
        return super().mix(x, keep) + FAINT * real.mean((0, 1))


class BatchNorm(Pooled):
    """Divides by the spread over the batch, in training only."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return out / out.std((0, 1)) if self.training else out


class BatchScale(Pooled):
    """Scales scores by the largest of the batch, as the first Nyströmformer code does its
    pseudo-inverse.
    """

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(
            scores / scores.masked_fill(~keep, 0.0).abs().max().clamp_min(1e-3), keep
        )


class CoupledLoss(Mean):
    """The extra loss of a sample is taken relative to the batch's, in training."""

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        own = mean.square().mean(-1)
        return {"size": own - own.mean().detach() if self.training else own}


class BatchGradient(Pooled):
    """Outputs keep samples apart; gradients do not."""

    def mix(self, x, keep):
        real = x.masked_fill(~keep[..., None], 0.0)
        return super().mix(x, keep) + straight_through(FAINT * real.mean((0, 1)))


class SqueezesBatch(Mean):
    """squeeze() takes a batch of one sample away."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return super().mean(value, keep).squeeze()


class FirstCounts(Mean):
    """The first real token counts a little more, though equivariance is claimed."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        first = (keep.cumsum(1) == 1) & keep
        return super().mean(value, keep) + 1e-3 * value.masked_fill(~first[..., None], 0.0).sum(1)


class DeniesPermutation(Pooled):
    """Equivariant, and claims not to be."""

    facts = Facts(padding_invariant=True, permutation_equivariant=False)


class NoisyEvaluation(Pooled):
    """Draws random numbers in evaluation."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return out if self.training else out + 1e-15 * torch.randn(out.shape[2])


class UnseededBackward(Pooled):
    """Gradients in training depend on how many there were before."""

    calls = itertools.count()

    def mix(self, x, keep):
        out = super().mix(x, keep)
        if not self.training:
            return out
        call = next(self.calls)
        return WrongBackward.apply(out, lambda grad: grad * (1 + 1e-3 * (call % 1009)))  # pyright: ignore


class Halves(Pooled):
    """Computes in bf16 what comes in float32."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        if scores.dtype == torch.float32:
            scores = scores.bfloat16().float()
        return super().weights(scores, keep)


class NarrowSums(Window):
    """Running sums in the dtype that comes: under autocast their differences lose all digits."""

    def widened(self, x: Tensor) -> Tensor:
        return x


class Overflows(Pooled):
    """A softmax without taking the largest off first."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        weights = torch.exp(30 * scores).masked_fill(~keep, 0.0)
        return weights / (weights.sum(1, keepdim=True) + 1e-30)


class Views(Pooled):
    """`view`, which needs contiguous tokens."""

    def mix(self, x, keep):
        return super().mix(x.view(-1, x.shape[-1]).view(x.shape), keep)


class ViewsBackward(Pooled):
    """A backward pass written by hand that needs contiguous gradients."""

    def mix(self, x, keep):
        return WrongBackward.apply(
            super().mix(x, keep), lambda grad: grad.view(-1).view(grad.shape)
        )  # pyright: ignore


class NeedsTwo(Mean):
    """Divides by one token less than there are."""

    facts = Facts(permutation_equivariant=True)

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return super().mean(value, keep) / (value.shape[1] - 1)


class BoundUnawares(Placed):
    """Bound, and claims to take any length."""

    facts = replace(Placed.facts, max_length=None)


class AllPaddedGradient(Pooled):
    """softmax of nothing but -inf, mended in the output and not in its gradient."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        weights = torch.softmax(scores + torch.where(keep, 0.0, float("-inf")), 1)
        return torch.where(keep, weights, 0.0)


class AllPadded(Pooled):
    """softmax of nothing but -inf."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), 1)


class FallsBack(Pooled):
    """Leaves the whole batch unmasked where one sample has no real token."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(scores, keep if keep.any(1).all() else torch.ones_like(keep))


class CompiledOther(Pooled):
    """Another form under torch.compile, which is not the same."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return 1.0001 * out if torch.compiler.is_compiling() else out


class PrefillsOther(RunningMean):
    """prefill returns sums for means."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return 2 * out, cache


class OneLength(RunningMean):
    """The cache counts the padded length for every sample."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return out, cache | {"count": torch.full_like(cache["count"], x.shape[1])}


class StepsInPlace(RunningMean):
    """A step adds to the cache that it was given."""

    def step(self, x: Tensor, cache: Any):
        cache["total"].add_(self.value(x))
        count = cache["count"] + 1
        return self.value(x) + cache["total"] / count[:, None], {
            "total": cache["total"],
            "count": count,
        }


class BatchLast(RunningMean):
    """The cache holds its sums with the batch last."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return out, cache | {"total": cache["total"].T}

    def step(self, x: Tensor, cache: Any):
        out, cache = super().step(x, cache | {"total": cache["total"].T})
        return out, cache | {"total": cache["total"].T}


class CountsInPython(RunningMean):
    """The cache holds a number of no sample's."""

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        out, cache = super().prefill(x, keep=keep)
        return out, cache | {"longest": x.shape[1]}


class CacheWithoutCause(Mean):
    """Claims a decode cache and sees later positions."""

    caches = True  # pyright: ignore[reportAssignmentType]

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        return self.forward(x, keep=keep).out, {"total": x.sum(1)}

    def step(self, x: Tensor, cache: Any):
        return x, cache


class Unsaved(RandomFeatures):
    """Random features in a buffer that checkpoints leave out."""

    def keep_features(self, features: Tensor) -> None:
        self.register_buffer("features", features, persistent=False)


class Unregistered(RandomFeatures):
    """Random features in a plain attribute."""

    def keep_features(self, features: Tensor) -> None:
        self.features = features


class Unmoved(RandomFeatures):
    """A table that every build makes alike, in a plain attribute, which stays behind when the
    mixer moves.
    """

    def keep_features(self, features: Tensor) -> None:
        self.features = torch.eye(len(features))


class CountsCalls(Pooled):
    """A counter in a buffer, not declared."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def mix(self, x, keep):
        if self.training:
            self.calls += 1
        return super().mix(x, keep)


class Remembers(Pooled):
    """The last batch lives on in an attribute, in training."""

    level = 0.0

    def mix(self, x, keep):
        out = super().mix(x, keep) + self.level
        if self.training:
            self.level = 0.1 * x.detach().mean().item()
        return out


class StateOutside(Centred):
    """Declared state, kept outside of buffers."""

    shift = 0.0

    def forward(self, x, *, keep=None, carry=None):
        shift = self.shift
        return super().forward(x, keep=keep) + shift

    def update(self, x: Tensor) -> None:
        super().update(x)
        self.shift += x.mean().item()


class NoState(Pooled):
    """Declares state and has none."""

    facts = replace(Pooled.facts, stateful=True)


class Unused(Pooled):
    """A layer nobody calls."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.spare = nn.Linear(site.dim, site.dim)


class TailInTheLast(Handed):
    """The last layer, too, makes a carry that nobody takes."""

    def has_tail(self, site: Any) -> bool:
        return True


class UnknownRule(Pooled):
    """A rule for a parameter that was renamed."""

    def parameter_rules(self):
        return {"scores.weight": ParameterRule(lr_scale=0.1)}


class LossInAColumn(Mean):
    """Losses of shape (B, 1)."""

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        return {"size": mean.square().mean(-1, keepdim=True)}


class UnnamedLoss(Mean):
    """A loss without a weight."""

    loss_weights = {}  # noqa: RUF012


class DetachedLoss(Mean):
    """A loss that cannot be learned from."""

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        return {"size": mean.detach().square().mean(-1)}


class SharedCarry(Handed):
    """What is handed on is mixed over the batch."""

    def carry(self, tail: Tensor, keep: Tensor) -> Tensor:
        own = super().carry(tail, keep)
        return own + FAINT * own.mean(0)


class PaddedCarry(Handed):
    """What is handed on counts padding."""

    def carry(self, tail: Tensor, keep: Tensor) -> Tensor:
        return tail.mean(1)


class CrossPadding(Attention):
    """Padded keys take part where there are other queries."""

    def masked(self, scores: Tensor, key_keep: Tensor) -> Tensor:
        return super().masked(scores, key_keep) if scores.shape[2] == scores.shape[3] else scores


class CrossClaimed(Pooled):
    """A token mixer that claims cross-attention."""

    facts = replace(Pooled.facts, cross=True)


class CrossForgets(Crossing):
    """Steps without what it has in memory."""

    def step(self, x: Tensor, cache: Any, *, memory: Any = None) -> tuple[Tensor, Any]:
        return self.value(x), cache


class CrossSpends(Crossing):
    """Changes its memory in place, to what it needs at the next step."""

    def step(self, x: Tensor, cache: Any, *, memory: Any = None) -> tuple[Tensor, Any]:
        out = super().step(x, cache, memory=memory)
        memory["mean"].copy_(torch.nextafter(memory["mean"], memory["mean"] + 1))
        return out


OFF = Operation("tests.off", reference=lambda x: x * x)


@OFF.implementation("fast")
def _nearly(x: Tensor) -> Tensor:
    return x * x * (1 + 1e-7)


class OffKernel(Squared):
    """An implementation that is not quite what its reference is."""

    operation = OFF


class OnTheCPU(Pooled):
    """Makes its numbers on one device by name."""

    def mix(self, x, keep):
        return super().mix(x, keep) + torch.zeros(x.shape[-1], dtype=x.dtype, device="cpu")


class DropsClassToken(Pooled):
    """Leaves prefix tokens out of its output."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.prefix = site.num_prefix_tokens

    def mix(self, x, keep):
        return super().mix(x, keep)[:, self.prefix :]


class OnlyPatches(Pooled):
    """Expects nothing but patches on a grid."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.grid = site.grid

    def mix(self, x, keep):
        if self.grid:
            x.reshape(x.shape[0], *self.grid, -1)
        return super().mix(x, keep)


class TooExact(Convolution):
    """Mixes rounding errors of later positions and claims not to."""

    facts = replace(Convolution.facts, leak=0.0)


class LeaksMuch(Convolution):
    """Declares as rounding what is none, so that nothing can refute its causality."""

    facts = replace(Convolution.facts, leak=1e-3)


WRONG: tuple[tuple[type, set[str]], ...] = (
    (Widens, {"shapes"}),
    (LeaksMuch, {"leak"}),
    (OneMore, {"mask-of-ones"}),
    (Cleans, {"inputs-kept"}),
    (ScaledGradient, {"gradients"}),
    (ScaledInSingle, {"gradients"}),
    (CutGradient, {"gradients"}),
    (SeesLater, {"causal-outputs"}),
    (SeesNext, {"causal-outputs", "causal-gradients", "causal-lengths"}),
    (LaterGradient, {"causal-gradients"}),
    (LaterWeightGradient, {"causal-gradients"}),
    (KnowsLength, {"causal-lengths"}),
    (TooExact, {"causal-outputs", "causal-gradients"}),
    (PaddingShows, {"padding-content"}),
    (PaddedMean, {"padding-content", "padding-amount"}),
    (PaddingGradient, {"padding-content"}),
    (PaddedLength, {"padding-amount"}),
    (FromTheFront, {"padding-amount"}),
    (BatchShows, {"batch-outputs", "all-padded"}),
    (BatchNorm, {"batch-outputs", "batch-gradients"}),
    (BatchScale, {"batch-outputs", "batch-gradients", "all-padded"}),
    (CoupledLoss, {"batch-gradients"}),
    (BatchGradient, {"batch-gradients"}),
    (SqueezesBatch, {"batch-outputs"}),
    (FirstCounts, {"permutation"}),
    (DeniesPermutation, {"permutation"}),
    (NoisyEvaluation, {"determinism"}),
    (UnseededBackward, {"determinism"}),
    (Halves, {"precision-fp32"}),
    (NarrowSums, {"precision-bf16"}),
    (Overflows, {"precision-bf16"}),
    (Views, {"strides"}),
    (ViewsBackward, {"strides"}),
    (NeedsTwo, {"lengths"}),
    (BoundUnawares, {"max-length"}),
    (AllPadded, {"all-padded"}),
    (AllPaddedGradient, {"all-padded"}),
    (FallsBack, {"all-padded"}),
    (CompiledOther, {"compiled"}),
    (PrefillsOther, {"cache-prefill"}),
    (CacheWithoutCause, {"cache-prefill", "cache-step"}),
    (OneLength, {"cache-step"}),
    (StepsInPlace, {"cache-functional"}),
    (BatchLast, {"cache-beams"}),
    (CountsInPython, {"cache-beams"}),
    (Unsaved, {"state-round-trip"}),
    (Unregistered, {"state-round-trip", "state-registered"}),
    (Unmoved, {"state-registered"}),
    (CountsCalls, {"state-hidden"}),
    (Remembers, {"state-hidden"}),
    (StateOutside, {"state-declared"}),
    (NoState, {"state-declared"}),
    (Unused, {"parameters-used"}),
    (TailInTheLast, {"parameters-used"}),
    (UnknownRule, {"parameters-used"}),
    (LossInAColumn, {"losses"}),
    (UnnamedLoss, {"losses"}),
    (DetachedLoss, {"losses"}),
    (SharedCarry, {"carry"}),
    (PaddedCarry, {"carry"}),
    (CrossPadding, {"cross"}),
    (CrossClaimed, {"cross"}),
    (CrossForgets, {"cross-cache"}),
    (CrossSpends, {"cross-cache"}),
    (OffKernel, {"kernels"}),
    (OnTheCPU, {"devices"}),
    (DropsClassToken, {"class-token"}),
    (OnlyPatches, {"class-token"}),
)
