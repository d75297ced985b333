"""Small mixers without a fault, one for each kind of thing the certificate looks at; `wrong.py`
spoils them.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from subquad.errors import PluginError
from subquad.nn import AttentionCore, MixerOutput, ParameterRule, TokenMixer
from subquad.nn.kernels import Operation
from subquad.plugin import AttentionConfig, Facts, MixerConfig, Site


def ones(x: Tensor) -> Tensor:
    """A mask in which all tokens are real, (B, L)."""
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)


class Mean(TokenMixer):
    """Each token plus the mean of all real tokens; its mean square is an extra loss."""

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)
    loss_weights = {"size": 0.1}  # noqa: RUF012

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.out = nn.Linear(site.dim, site.dim)
        self.gate = nn.Parameter(torch.ones(site.dim))

    def parameter_rules(self):
        return {"gate": ParameterRule(weight_decay=False)}

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        value, keep = self.value(x), ones(x) if keep is None else keep
        mean = self.mean(value, keep)
        return MixerOutput(self.out(value + self.gate * mean[:, None]), self.losses(mean))

    def mean(self, value: Tensor, keep: Tensor) -> Tensor:
        """(B, D)."""
        return value.masked_fill(~keep[..., None], 0.0).sum(1) / keep.sum(
            1, keepdim=True
        ).clamp_min(1)

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        return {"size": mean.square().mean(-1)}


class Pooled(TokenMixer):
    """Each token plus a softmax-weighted mean of the real tokens."""

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.score = nn.Linear(site.dim, 1)

    def forward(self, x, *, keep=None, carry=None):
        return self.mix(x, ones(x) if keep is None else keep)

    def mix(self, x: Tensor, keep: Tensor) -> Tensor:
        """(B, L, D), of tokens and a mask that is there."""
        weights = self.weights(self.score(x).squeeze(-1), keep)
        return self.value(x) + weights[:, None] @ self.value(x)

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        """(B, L)."""
        return torch.softmax(scores.masked_fill(~keep, -1e9), 1)


class Chosen(TokenMixer):
    """Each token plus that of its block of 32 which scores highest, in whatever format the scores
    have.
    """

    Config = MixerConfig
    facts = Facts()

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.score = nn.Linear(site.dim, 1, bias=False).requires_grad_(False)

    def forward(self, x, *, keep=None, carry=None):
        value, scores = self.value(x), self.score(x).squeeze(-1)
        blocks = nn.functional.pad(scores, (0, -x.shape[1] % 32), value=-torch.inf)
        best = blocks.unflatten(1, (-1, 32)).argmax(-1)
        best = best + 32 * torch.arange(best.shape[1], device=x.device)
        chosen = value.gather(1, best[..., None].expand(-1, -1, value.shape[-1]))
        return value + chosen.repeat_interleave(32, 1)[:, : x.shape[1]]


class RunningMean(TokenMixer):
    """The mean of all real tokens so far, with a decode cache."""

    Config = MixerConfig
    facts = Facts(causal="always", padding_invariant=True)
    caches = True  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        keep = ones(x) if keep is None else keep
        value = self.value(x).masked_fill(~keep[..., None], 0.0)
        return value + value.cumsum(1) / keep.cumsum(1).clamp_min(1)[..., None]

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        keep = ones(x) if keep is None else keep
        total = self.value(x).masked_fill(~keep[..., None], 0.0).sum(1)
        return self.forward(x, keep=keep), {"total": total, "count": keep.sum(1)}

    def step(self, x: Tensor, cache: Any):
        value = self.value(x)
        total, count = cache["total"] + value, cache["count"] + 1
        return value + total / count[:, None], {"total": total, "count": count}


class Window(TokenMixer):
    """The mean of the last 8 tokens, from the difference of two running sums, in float32 at
    least.
    """

    Config = MixerConfig
    facts = Facts(causal="always")
    WIDTH = 8

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        value = self.value(x)
        total = self.widened(value).cumsum(1)
        behind = torch.cat([torch.zeros_like(total[:, : self.WIDTH]), total], 1)[
            :, : total.shape[1]
        ]
        return ((total - behind) / self.WIDTH).to(value.dtype)

    def widened(self, x: Tensor) -> Tensor:
        return x.double() if x.dtype == torch.float64 else x.float()


class Convolution(TokenMixer):
    """A decaying causal convolution by FFT, which mixes rounding errors of all positions."""

    Config = MixerConfig
    facts = Facts(causal="always", leak=1e-12, complexity="L log L")

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(-1.0, 1.0, site.dim))

    def forward(self, x, *, keep=None, carry=None):
        length = x.shape[1]
        steps = torch.arange(length, dtype=x.dtype, device=x.device)
        kernel = torch.exp(-steps[:, None] * torch.nn.functional.softplus(self.rate.to(x.dtype)))
        if keep is not None:
            x = x.masked_fill(~keep[..., None], 0.0)
        with torch.autocast(x.device.type, enabled=False):
            spectrum = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(
                kernel, 2 * length, dim=0
            )
            return torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length]


class Placed(TokenMixer):
    """A learned weight for each position among the real tokens; bound to the length it is built
    for.
    """

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=False, max_length="site")

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.table = nn.Parameter(torch.randn(site.max_len, site.dim))

    def forward(self, x, *, keep=None, carry=None):
        return x * self.table[(ones(x) if keep is None else keep).cumsum(1).sub(1).clamp_min(0)]


class RandomFeatures(TokenMixer):
    """Cosines of fixed random projections, kept in a buffer."""

    Config = MixerConfig
    facts = Facts(permutation_equivariant=True, padding_invariant=True)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.out = nn.Linear(site.dim, site.dim)
        generator = torch.Generator().manual_seed(site.seed)
        self.keep_features(torch.randn(site.dim, site.dim, generator=generator))

    def keep_features(self, features: Tensor) -> None:
        self.register_buffer("features", features)

    def forward(self, x, *, keep=None, carry=None):
        return self.out(torch.cos(x @ self.features.to(x.dtype)))


class Centred(TokenMixer):
    """Takes off a running mean that training keeps in a buffer."""

    Config = MixerConfig
    facts = Facts(stateful=True, padding_invariant=True)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.out = nn.Linear(site.dim, site.dim)
        self.register_buffer("level", torch.zeros(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        out = self.out(x - self.level.to(x.dtype))
        if self.training:
            self.update(x.detach())
        return out

    def update(self, x: Tensor) -> None:
        self.level.lerp_(x.mean((0, 1)).to(self.level.dtype), 0.1)


class Handed(TokenMixer):
    """Hands the mean of its tokens to the next layer; the last layer has no tail that makes one."""

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.tail = nn.Linear(site.dim, site.dim) if self.has_tail(site) else None

    def has_tail(self, site: Site) -> bool:
        return not site.is_last

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        keep = ones(x) if keep is None else keep
        out = self.value(x) if carry is None else self.value(x) + carry[:, None]
        return MixerOutput(out, {}, None if self.tail is None else self.carry(self.tail(x), keep))

    def carry(self, tail: Tensor, keep: Tensor) -> Tensor:
        return tail.masked_fill(~keep[..., None], 0.0).sum(1) / keep.sum(1, keepdim=True).clamp_min(
            1
        )


class Attention(AttentionCore):
    """Softmax attention by hand."""

    class Config(AttentionConfig):
        """The projections' parameters."""

    facts = Facts(
        padding_invariant=True, permutation_equivariant=True, cross=True, complexity="L^2"
    )

    def __init__(self, config: Any, site: Site):
        super().__init__()

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return torch.softmax(scores if key_keep is None else self.masked(scores, key_keep), -1) @ v

    def masked(self, scores: Tensor, key_keep: Tensor) -> Tensor:
        return scores.masked_fill(~key_keep[:, None, None], -1e9)


class SelfOnly(Attention):
    """The same, for one sequence."""

    facts = Facts(padding_invariant=True, permutation_equivariant=True, complexity="L^2")

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if q.shape[2] != k.shape[2]:
            raise PluginError(
                f"SelfOnly takes one sequence, got {q.shape[2]} queries and {k.shape[2]} keys"
            )
        return super().forward(q, k, v, query_keep=query_keep, key_keep=key_keep)


class Crossing(TokenMixer):
    """Each token plus the mean of another sequence, or of its own; what it needs of the other is
    kept in memory.
    """

    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True, cross=True)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.crossing = site.role == "cross"

    @property
    def caches(self) -> bool:
        return self.crossing

    def forward(
        self,
        x: Tensor,
        *,
        keep: Tensor | None = None,
        carry: Any = None,
        context: Tensor | None = None,
        context_keep: Tensor | None = None,
    ) -> Tensor:
        memory = (
            self.memory(x, keep=keep)
            if context is None
            else self.memory(context, keep=context_keep)
        )
        return self.value(x) + memory["mean"][:, None]

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> dict[str, Tensor]:
        keep = ones(context) if keep is None else keep
        total = self.value(context).masked_fill(~keep[..., None], 0.0).sum(1)
        return {"mean": total / keep.sum(1, keepdim=True).clamp_min(1)}

    def prefill(
        self, x: Tensor, *, keep: Tensor | None = None, memory: Any = None
    ) -> tuple[Tensor, Any]:
        return self.value(x) + memory["mean"][:, None], {}

    def step(self, x: Tensor, cache: Any, *, memory: Any = None) -> tuple[Tensor, Any]:
        return self.value(x) + memory["mean"], cache


SQUARE = Operation("tests.square", reference=lambda x: x * x)


@SQUARE.implementation("fast", devices=("cpu",))
def _fast_square(x: Tensor) -> Tensor:
    return x.square()


class Squared(TokenMixer):
    """Each token's value squared, by an operation with two implementations."""

    Config = MixerConfig
    facts = Facts(causal="always", padding_invariant=True, permutation_equivariant=True)
    operation = SQUARE

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.operation(self.value(x))


class InSingle(Pooled):
    """Its softmax is in float32, whatever it is called with."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return super().weights(scores.float(), keep).to(scores.dtype)


class BatchLoss(Mean):
    """One loss for the batch."""

    def losses(self, mean: Tensor) -> dict[str, Tensor]:
        return {"size": mean.square().mean()}


class Routed(Pooled):
    """A gate for each group of 16 tokens but the first."""

    facts = Facts()

    def __init__(self, config: Any, site: Site):
        super().__init__(config, site)
        self.gate = nn.Linear(site.dim, 1)

    def mix(self, x, keep):
        out = super().mix(x, keep)
        if x.shape[1] <= 16:
            return out
        return torch.cat([out[:, :16], out[:, 16:] * torch.sigmoid(self.gate(x[:, 16:]))], 1)


class Reentrant(Pooled):
    """A checkpoint that is computed again in a backward pass of its own; a weight without a
    number.
    """

    def __init__(self, config: Any, site: Site):
        super().__init__(config, site)
        self.none = nn.Parameter(torch.empty(0, site.dim))

    def mix(self, x, keep):
        return checkpoint(super().mix, x, keep, use_reentrant=True)  # pyright: ignore


class Turned(Pooled):
    """An orthogonal weight, whose buffer torch keeps transposed."""

    def __init__(self, config: Any, site: Site):
        super().__init__(config, site)
        nn.utils.parametrizations.orthogonal(self.value)


class CompiledInside(Pooled):
    """One of its functions is compiled."""

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        return _compiled_softmax(scores.masked_fill(~keep, -1e9))


@torch.compile(backend="aot_eager", dynamic=True)
def _compiled_softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, 1)


class SingleAcross(Attention):
    """Its softmax is in float32, also where it sees another sequence."""

    def masked(self, scores: Tensor, key_keep: Tensor) -> Tensor:
        return super().masked(scores.float(), key_keep).to(scores.dtype)


class Table(TokenMixer):
    """As many positions as its table has rows, a number of its own."""

    Config = MixerConfig
    facts = Facts(max_length=300)

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.table = nn.Parameter(torch.randn(300, site.dim))

    def forward(self, x, *, keep=None, carry=None):
        return x * self.table[: x.shape[1]]


class Packed(TokenMixer):
    """An LSTM that is told how long each sample is, on the CPU as torch wants it."""

    Config = MixerConfig
    facts = Facts()

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.lstm = nn.LSTM(site.dim, site.dim, batch_first=True)

    def forward(self, x, *, keep=None, carry=None):
        lengths = torch.full(x.shape[:1], x.shape[1])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return out


class Unpadded(RunningMean):
    """Claims nothing of padding, which it counts like any token."""

    facts = Facts(causal="always")

    def forward(self, x, *, keep=None, carry=None):
        return super().forward(x)

    def prefill(self, x: Tensor, *, keep: Tensor | None = None):
        return super().prefill(x)


class KeepsTables(RunningMean):
    """Keeps sparse matrices that calls make of nothing but shapes."""

    facts = Facts(causal="always", padding_invariant=True, complexity="L")
    caches = False  # pyright: ignore[reportAssignmentType]

    def __init__(self, config: Any, site: Site):
        super().__init__(config, site)
        self.tables: dict[Any, Tensor] = {}

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x, keep=keep)
        key = (x.shape[1], out.dtype, x.device)
        if key not in self.tables:
            place = torch.arange(x.shape[1], device=x.device)
            ones = torch.ones(len(place), dtype=out.dtype, device=x.device)
            self.tables[key] = torch.sparse_coo_tensor(
                torch.stack([place, place]), ones, (len(place), len(place))
            ).coalesce()
        flat = out.transpose(0, 1).flatten(1)
        return torch.sparse.mm(self.tables[key], flat).view_as(out.transpose(0, 1)).transpose(0, 1)


class Brief(RunningMean):
    """Takes 64 positions at most, a number of its own."""

    facts = replace(RunningMean.facts, max_length=64)


SELDOM: tuple[tuple[type, set[str]], ...] = (
    (Brief, {"precision-fp32", "precision-bf16", "cache-step", "causal-outputs", "max-length"}),
    (Unpadded, {"cache-prefill", "cache-step", "cache-functional", "cache-beams"}),
    (Turned, {"state-round-trip"}),
    (CompiledInside, {"shapes", "gradients", "parameters-used"}),
    (SingleAcross, {"cross"}),
    (Table, {"max-length"}),
    (Packed, {"devices"}),
    (KeepsTables, {"state-registered", "complexity"}),
)
"""Right ones of unusual style, and the checks that may take them for wrong."""


RIGHT = (
    Crossing,
    Squared,
    Mean,
    BatchLoss,
    Pooled,
    Routed,
    InSingle,
    Reentrant,
    RunningMean,
    Window,
    Convolution,
    Placed,
    RandomFeatures,
    Centred,
    Handed,
    Attention,
    SelfOnly,
)
