"""Mixers that are wrong only where little code looks: far down a sequence, in a later layer, with
one sample, in a first call, in what the whole process shares.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from right import Attention, Centred, Crossing, Handed, Mean, Pooled, RunningMean, Window
from torch import Tensor, nn
from wrong import WrongBackward

from subquad.nn import MixerOutput, as_output
from subquad.plugin import MixerConfig

CHUNK = 8


class CutHistory(RunningMean):
    """Each chunk of 8 tokens takes the earlier ones without their gradient."""

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] <= CHUNK:
            return super().forward(x, keep=keep)
        late = torch.arange(x.shape[1], device=x.device)[:, None] >= CHUNK
        whole = super().forward(x, keep=keep)
        return torch.where(late, whole.detach() + self.value(x) - self.value(x).detach(), whole)


class FarBackward(Pooled):
    """Its backward pass is 1 % off beyond 128 tokens."""

    def mix(self, x, keep):
        factor = 1.01 if x.shape[1] > 128 else 1.0
        out = super().mix(x, keep)
        return WrongBackward.apply(out, lambda grad: factor * grad)  # pyright: ignore


class StraightRouter(Pooled):
    """Takes the better half of more than 16 tokens, with a gradient as if it scaled them."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        if x.shape[1] <= 16:
            return out
        weight = torch.sigmoid(self.score(x))
        return out * ((weight > 0.5).to(x.dtype) + weight - weight.detach())


class SmallGradient(Mean):
    """The gradient of a weight that hardly counts is twice what it should be."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.little = nn.Parameter(torch.ones(site.dim))

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        twice = WrongBackward.apply(self.little, lambda grad: 2 * grad)  # pyright: ignore
        return super().mean(value, keep) + 1e-4 * twice


class SeesLaterInLayerTwo(RunningMean):
    """Adds the last token where it is no first or second layer."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.depth = site.layer_index

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        if self.depth < 2 or keep is not None:
            return out
        return out + 0.1 * x[:, -1:]


class PaddingBehindPrefix(Pooled):
    """Padding counts where a prefix token stands in front."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.prefix = site.num_prefix_tokens

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(scores, keep | bool(self.prefix))


class FirstBatch(Centred):
    """Takes its level from the first batch it sees, also in evaluation."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, x, *, keep=None, carry=None):
        if not self.started:
            self.level.copy_(x.detach().mean((0, 1)))
            self.started.fill_(True)
        return super().forward(x, keep=keep)


class Grows(Centred):
    """Keeps the mean of every batch."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.means: list[float] = []

    def update(self, x: Tensor) -> None:
        super().update(x)
        self.means.append(x.mean().item())


class SpendsAlone(RunningMean):
    """A step of one sample adds to the cache that it was given."""

    def step(self, x: Tensor, cache: Any):
        if len(x) > 1:
            return super().step(x, cache)
        total = cache["total"].add_(self.value(x))
        count = cache["count"] + 1
        return self.value(x) + total / count[:, None], {"total": total, "count": count}


class FarKeys(Attention):
    """Padded keys take part where there are more than 64."""

    def masked(self, scores: Tensor, key_keep: Tensor) -> Tensor:
        return scores if scores.shape[-1] > 64 else super().masked(scores, key_keep)


class CrossGradient(Crossing):
    """The other sequence has half of its gradient."""

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> dict[str, Tensor]:
        if self.crossing:
            context = WrongBackward.apply(context, lambda grad: grad / 2)  # pyright: ignore
        return super().memory(context, keep=keep)


class NoSpread(Pooled):
    """Divides by the spread of a token's numbers, which equal numbers do not have."""

    def mix(self, x, keep):
        return super().mix(x / x.std(-1, keepdim=True), keep)


class Seeds(Pooled):
    """Sets the seed of torch's generator when it is built."""

    def __init__(self, config: Any, site: Any):
        torch.manual_seed(7)
        super().__init__(config, site)


class LeavesGradOff(Window):
    """Switches gradients off for good in evaluation."""

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        if not self.training:
            torch.set_grad_enabled(False)
        return out


class Unbounded(Pooled):
    """Its search leaves its own bounds."""

    class Config(MixerConfig):
        """Parameters."""

        order: int = Field(2, ge=1, le=4, json_schema_extra={"search": {"low": 1, "high": 8}})

    facts = replace(Pooled.facts)


class LeaksMoreThanSaid(RunningMean):
    """Declares a leak of 1e-12, and lets 3e-10 of the mean of all tokens through."""

    facts = replace(RunningMean.facts, leak=1e-12)

    def forward(self, x, *, keep=None, carry=None):
        return super().forward(x, keep=keep) + 3e-10 * x.mean(1, keepdim=True)


class Seam(RunningMean):
    """The last token of each chunk of 48 sees the next one."""

    chunk = 48

    def forward(self, x, *, keep=None, carry=None):
        following = nn.functional.pad(x[:, 1:], (0, 0, 0, 1))
        last = torch.arange(1, x.shape[1] + 1, device=x.device) % self.chunk == 0
        return super().forward(x, keep=keep) + 0.05 * following * last[:, None]


class FarSeam(Seam):
    """The same, of chunks of 384."""

    chunk = 384


class LateRows(RunningMean):
    """Positions from 1,060 on see the last one."""

    def forward(self, x, *, keep=None, carry=None):
        late = torch.arange(x.shape[1], device=x.device)[:, None] >= 1060
        return super().forward(x, keep=keep) + torch.where(late, x[:, -1:], 0.0)


class LastSees(RunningMean):
    """The last of several layers of an encoder adds the mean of all tokens."""

    def __init__(self, config: Any, site: Any):
        super().__init__(config, site)
        self.last = site.role == "self" and site.num_layers == site.layer_index + 1 > 1

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        return out + x.mean(1, keepdim=True) if self.last else out


class PassesTwice(Handed):
    """From the third layer on a carry of a carry is averaged over all samples."""

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        result = as_output(super().forward(x, keep=keep, carry=carry))
        if carry is None:
            return result
        handed = result.carry
        return replace(result, carry=None if handed is None else handed.mean(0, keepdim=True))


class AloneOverBatch(Pooled):
    """Weighs the samples where each has one token."""

    def mix(self, x, keep):
        out = super().mix(x, keep)
        return out * torch.softmax(self.score(x), 0) if x.shape[1] == 1 else out


class WholeBatch(Pooled):
    """Counts otherwise where no sample of the batch has padding."""

    def mix(self, x, keep):
        is_whole = bool(keep.all())
        return super().mix(x, keep) * (1.0 if is_whole else 1.001)


class FirstMasks(Pooled):
    """Beyond 16 samples it takes the masks of the first ones."""

    def mix(self, x, keep):
        if len(x) > 16:
            keep = keep[torch.arange(len(x)) % 16]
        return super().mix(x, keep)


class FilledMaximum(Mean):
    """The largest real value of each number, where padding stands for -4."""

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        return value.masked_fill(~keep[..., None], -4.0).amax(1)


class LosesBlock(RunningMean):
    """The step that fills a block of 512 tokens is lost."""

    def step(self, x: Tensor, cache: Any):
        out, after = super().step(x, cache)
        lost = after["count"] == 512
        return out, {**after, "total": torch.where(lost[:, None], cache["total"], after["total"])}


class CountsInBf16(RunningMean):
    """Counts tokens in bf16 under autocast, which stops at 256."""

    def step(self, x: Tensor, cache: Any):
        out, after = super().step(x, cache)
        if torch.is_autocast_enabled("cpu"):
            count = (cache["count"].bfloat16() + 1).to(after["count"].dtype)
            value = after["total"] - cache["total"]
            return value + after["total"] / count[:, None], {**after, "count": count}
        return out, after


class FarOverflow(Pooled):
    """A number that float32 cannot hold beyond 880 tokens."""

    def mix(self, x, keep):
        grown = (0.1 * torch.ones_like(x[..., :1]).cumsum(1)).exp()
        return super().mix(x * (grown / grown), keep)


class ShortMemory(Crossing):
    """Decoding sees 256 tokens of the other sequence."""

    def forward(self, x: Tensor, **others: Any) -> Tensor:
        self.is_whole = True
        try:
            return super().forward(x, **others)
        finally:
            self.is_whole = False

    is_whole = False

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> dict[str, Tensor]:
        if not self.is_whole:
            context, keep = context[:, :256], None if keep is None else keep[:, :256]
        return super().memory(context, keep=keep)


class OwnMask(Crossing):
    """Takes its own mask for that of another sequence of the same length."""

    def forward(self, x: Tensor, *, keep: Tensor | None = None, **others: Any) -> Tensor:
        context = others.get("context")
        if context is not None and context.shape[1] == x.shape[1]:
            others["context_keep"] = keep
        return super().forward(x, keep=keep, **others)


class RedrawsSeldom(Pooled):
    """Scales its scores anew at each 200th call."""

    calls = 0
    scale = 1.0

    def mix(self, x, keep):
        self.calls += 1
        if self.calls % 200 == 0:
            self.scale = 1 + torch.rand(()).item()
        return super().mix(self.scale * x, keep)


class KeepsWeights(Pooled):
    """Keeps a product of its weights from the first call."""

    kept: Tensor | None = None

    def mix(self, x, keep):
        if self.kept is None:
            self.kept = self.score.weight.detach().square()
        return super().mix(x, keep) * (1 + 0 * self.kept.sum())


class KeepsFormat(Pooled):
    """Keeps a table of the format of the first call."""

    kept: Tensor | None = None

    def mix(self, x, keep):
        if self.kept is None:
            self.kept = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
        return super().mix(x, keep) * self.kept.to(x.device)


class KeepsRounded(Pooled):
    """Keeps a table with the rounding of the first call, by its length alone."""

    kept: Tensor | None = None

    def mix(self, x, keep):
        if self.kept is None:
            self.kept = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device).cos()
        return super().mix(x, keep) * self.kept.to(x)


ELSEWHERE: tuple[tuple[type, set[str]], ...] = (
    (CutHistory, {"gradients"}),
    (FarBackward, {"gradients"}),
    (StraightRouter, {"gradients"}),
    (SmallGradient, {"gradients"}),
    (SeesLaterInLayerTwo, {"causal-outputs"}),
    (PaddingBehindPrefix, {"padding-content"}),
    (FirstBatch, {"state-declared"}),
    (Grows, {"state-registered"}),
    (SpendsAlone, {"cache-functional"}),
    (FarKeys, {"cross"}),
    (CrossGradient, {"cross"}),
    (NoSpread, {"lengths"}),
    (Seeds, {"process-kept"}),
    (LeavesGradOff, {"process-kept"}),
    (Unbounded, {"parameter-values"}),
    (LeaksMoreThanSaid, {"causal-outputs"}),
    (Seam, {"causal-outputs"}),
    (FarSeam, {"causal-outputs"}),
    (LateRows, {"causal-outputs"}),
    (LastSees, {"causal-outputs"}),
    (PassesTwice, {"carry"}),
    (AloneOverBatch, {"batch-outputs"}),
    (WholeBatch, {"batch-outputs"}),
    (FirstMasks, {"batch-outputs"}),
    (FilledMaximum, {"padding-amount"}),
    (LosesBlock, {"cache-step"}),
    (CountsInBf16, {"precision-bf16"}),
    (FarOverflow, {"lengths"}),
    (ShortMemory, {"cross-cache"}),
    (OwnMask, {"cross"}),
    (RedrawsSeldom, {"state-hidden"}),
    (KeepsWeights, {"state-registered"}),
    (KeepsFormat, {"state-registered"}),
    (KeepsRounded, {"state-registered"}),
)
