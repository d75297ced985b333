"""The torch half of the plugin contract: token mixers, attention cores, backbones and tasks.

Shape letters: B batch, L length, D model width, H heads, E head width, C classes.
Masks are bool, True = real token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.errors import PluginError
from subquad.plugin import AttentionConfig, Config, Site

Batch = dict[str, Tensor]
Cache = Any
"""What decoding carries from token to token: a tree (dicts, lists, tuples) of tensors with the batch first in each, so
that a beam search may reorder it with `index_select(0, ...)`. Each sample counts its own position."""


class MixerOutput(NamedTuple):
    """What a mixer returns.

    Attributes:
        out: (B, L, D), or (B, H, Lq, E) from a core.
        losses: extra losses by name, one value per sample, each (B,); weighted by the mixer's `loss_weights`.
        carry: anything the next layer's mixer should be given; None for most.
    """

    out: Tensor
    losses: Mapping[str, Tensor] = {}
    carry: Any = None


def as_output(result: Tensor | MixerOutput) -> MixerOutput:
    """A bare tensor from a simple mixer, wrapped."""
    return MixerOutput(result) if isinstance(result, Tensor) else result


@dataclass(frozen=True, kw_only=True)
class ParameterRule:
    """How the optimiser treats one parameter that the method's paper trains differently.

    Attributes:
        lr_scale: its learning rate over that of the others.
        weight_decay: whether the experiment's weight decay applies to it.
    """

    lr_scale: float = 1.0
    weight_decay: bool = True


class TokenMixer(nn.Module, ABC):
    """Mixes along the sequence and owns all its weights. Built as `cls(config, site)`.

    Attributes:
        loss_weights: coefficient of each extra loss this mixer returns; an absent or zero one is not added.
    """

    loss_weights: Mapping[str, float] = {}

    @abstractmethod
    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor | MixerOutput:
        """Mix `x`.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True = real token; None when all are real.
            carry: what the layer below handed on.

        Returns:
            (B, L, D), bare or in a `MixerOutput`.
        """

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Parameters, by their name in this module, that the optimiser must treat differently. Default: none."""
        return {}

    @property
    def caches(self) -> bool:
        """Whether `prefill` and `step` work: a causal mixer may offer them for decoding."""
        return False

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        """What `forward` returns for the start of a sequence, and the cache to go on with.

        Args:
            x: (B, L, D).
            keep: (B, L) bool; real tokens first, padding after them, so that each sample has its own length.

        Returns:
            (B, L, D), meaningless at padding, and the cache.
        """
        raise PluginError(f"{type(self).__name__} offers no decode cache")

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """The output at the next position of each sample: what `forward` over the whole sequence gives there.

        Args:
            x: (B, D), the next token of each sample.
            cache: from `prefill` or the last step; left as it is.

        Returns:
            (B, D) and the new cache.
        """
        raise PluginError(f"{type(self).__name__} offers no decode cache")


class AttentionCore(nn.Module, ABC):
    """Attention without its projections, which `AttentionMixer` owns. Built as `cls(config, site)`.

    All cores share the projections' names and shapes, so weights of a softmax model load into any of them.
    """

    loss_weights: Mapping[str, float] = {}

    @abstractmethod
    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor | MixerOutput:
        """Attend.

        Args:
            q: (B, H, Lq, E).
            k: (B, H, Lk, E).
            v: (B, H, Lk, Ev).
            query_keep: (B, Lq) bool, True = real token.
            key_keep: (B, Lk) bool, True = real token.

        Returns:
            (B, H, Lq, Ev), bare or in a `MixerOutput`.
        """

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """As `TokenMixer.parameter_rules`."""
        return {}

    @property
    def caches(self) -> bool:
        """As `TokenMixer.caches`."""
        return False

    def prefill(self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`: q, k, v (B, H, L, E) to (B, H, L, Ev) and the cache."""
        raise PluginError(f"{type(self).__name__} offers no decode cache")

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`: q, k, v (B, H, E) to (B, H, Ev) and the new cache."""
        raise PluginError(f"{type(self).__name__} offers no decode cache")


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
        q, k = self._queries_and_keys(x, context, _positions(x, keep), _positions(context, context_keep))
        v = self._split(self.value(context))
        mixed = as_output(self.core(q, k, v, query_keep=keep, key_keep=context_keep))
        return MixerOutput(self.out(mixed.out.transpose(1, 2).flatten(2)), mixed.losses, mixed.carry)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return {f"core.{name}": rule for name, rule in self.core.parameter_rules().items()}

    @property
    def caches(self) -> bool:
        return self.core.caches

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        q, k = self._queries_and_keys(x, x, _positions(x, keep), _positions(x, keep))
        out, cache = self.core.prefill(q, k, self._split(self.value(x)), keep=keep)
        lengths = torch.full(x.shape[:1], x.shape[1], device=x.device) if keep is None else keep.sum(1)
        return self.out(out.transpose(1, 2).flatten(2)), {"core": cache, "position": lengths}

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        token, position = x[:, None], cache["position"]
        q, k = self._queries_and_keys(token, token, position[:, None], position[:, None])
        v = self._split(self.value(token))
        out, inner = self.core.step(q[:, :, 0], k[:, :, 0], v[:, :, 0], cache["core"])
        return self.out(out.flatten(1)), {"core": inner, "position": position + 1}

    def _queries_and_keys(self, x: Tensor, context: Tensor, here: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.query_norm(self._split(self.query(x))), self.key_norm(self._split(self.key(context)))
        return (rotate(q, here), rotate(k, there)) if self.rotary else (q, k)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


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


class ModelOutput(NamedTuple):
    """What a backbone returns.

    Attributes:
        outputs: what the task's loss reads; (B, C) logits for classification.
        losses: extra losses by name, (B,) each, unweighted, for logging.
        penalty: their weighted sum, (B,), added to the task's loss; None when there is none.
    """

    outputs: Tensor
    losses: Mapping[str, Tensor] = {}
    penalty: Tensor | None = None


def gather_losses(mixers: list[TokenMixer], results: list[MixerOutput]) -> tuple[dict[str, Tensor], Tensor | None]:
    """Extra losses of all layers: the mean over the layers that give one, and their weighted sum.

    Returns:
        losses by name, (B,) each, and the penalty (B,) or None.
    """
    found: dict[str, list[Tensor]] = {}
    weighted: dict[str, list[Tensor]] = {}
    for mixer, result in zip(mixers, results, strict=True):
        for name, value in result.losses.items():
            found.setdefault(name, []).append(value)
            if weight := mixer.loss_weights.get(name, 0.0):
                weighted.setdefault(name, []).append(weight * value)
    losses = {name: torch.stack(values).mean(0) for name, values in found.items()}
    terms = [torch.stack(values).sum(0) / len(found[name]) for name, values in weighted.items()]
    return losses, (torch.stack(terms).sum(0) if terms else None)


@dataclass(frozen=True, kw_only=True)
class BackboneContext:
    """What a backbone is built from.

    Attributes:
        spec: the data set's description.
        num_outputs: width the task asks of the head.
        make_mixer: builds the mixer of one site; weights are drawn from torch's global generator.
        seed: the run's seed.
    """

    spec: DataSpec
    num_outputs: int
    make_mixer: Callable[[Site], TokenMixer]
    seed: int = 0


class Backbone(nn.Module, ABC):
    """The network around the mixers. Built as `cls(config, context)`.

    Attributes:
        blocks: the repeated layers, in order: the units that torch.compile and FSDP2 work on.
    """

    blocks: nn.ModuleList

    @abstractmethod
    def forward(self, batch: Batch) -> ModelOutput:
        """Run the network on a collated batch (`inputs`, `keep`, ...)."""


class Task(ABC):
    """Loss and metrics. Built as `cls(config, spec)`.

    The engine minimises `sum(loss_sum) / sum(weight)` over all ranks and micro-batches of a step. Weight and loss are
    two calls because the global weight has to be known before the first backward pass.
    """

    def __init__(self, config: Config, spec: DataSpec):
        self.config = config
        self.spec = spec

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Width of the head."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """`(loss_sum, weight)`: the summed loss, a scalar with gradient, and the weight it is summed over."""

    def weight(self, batch: Batch) -> float:
        """The weight of a batch, from the batch alone; must equal the second value of `loss`. Default: its samples."""
        return float(batch["labels"].shape[0])

    @abstractmethod
    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Exact sums of a batch (float64 or int64) that may be added over batches and ranks."""

    @abstractmethod
    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from the added sums."""

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Arrays over the batch to keep for paired tests, such as `predicted` and `label`, (B,) each. Default: none."""
        return {}
