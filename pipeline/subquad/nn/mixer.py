"""Token mixers and attention cores: what a mixer is, returns, and offers for decoding; the
projections around a core.

A mixer that claims `Facts.cross` also stands where one sequence sees another (`Site.role` is
"cross"). Its `forward` then takes `context` and `context_keep`, and where it offers decoding,
`prefill` and `step` take `memory`.

Shape letters: B batch, L length, D model width, H heads, E head width.
Masks are bool, True = real token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.plugin import AttentionConfig, Site

Cache = Any
"""What decoding carries from token to token: a tree (dicts, lists, tuples) of tensors with the
batch first in each, so that a beam search may reorder it with `index_select(0, ...)`. Each
sample counts its own position.
"""


class MixerOutput(NamedTuple):
    """What a mixer returns.

    Attributes:
        out: (B, L, D), or (B, H, Lq, E) from a core.
        losses: extra losses by name, one value per sample, each (B,), or one of the batch, ();
            weighted by the mixer's `loss_weights`.
        carry: anything the next layer's mixer should be given; None for most.
    """

    out: Tensor
    losses: Mapping[str, Tensor] = {}
    carry: Any = None


def as_output(result: Tensor | MixerOutput) -> MixerOutput:
    """A bare tensor from a simple mixer, wrapped."""
    if isinstance(result, Tensor):
        return MixerOutput(result)
    return result


class LastLosses(dict[str, Tensor]):
    """Extra losses of a layer's last call. A copy of the layer has none: they belong to a graph."""

    def __reduce__(self) -> tuple[type[LastLosses], tuple[()]]:
        return LastLosses, ()


def as_layer(mixer: TokenMixer) -> TokenMixer:
    """A mixer as any layer of torch: a call returns a tensor, and leaves extra losses in `losses`;
    with `return_output=True` it returns a `MixerOutput`.
    """
    mixer.register_forward_pre_hook(_take_wish, with_kwargs=True)
    mixer.register_forward_hook(_answer)
    mixer.losses = LastLosses()
    return mixer


def _take_wish(mixer: TokenMixer, given: tuple[Any, ...], words: dict[str, Any]) -> Any:
    mixer.returns_output = words.pop("return_output", False)
    return given, words


def _answer(mixer: TokenMixer, given: tuple[Any, ...], result: Any) -> Tensor | MixerOutput:
    output = as_output(result)
    mixer.losses = LastLosses(output.losses)
    return output if mixer.returns_output else output.out


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
        loss_weights: coefficient of each extra loss this mixer returns; an absent or zero one is
            not added.
        losses, returns_output: of `as_layer`.
    """

    loss_weights: Mapping[str, float] = {}
    losses: Mapping[str, Tensor]
    returns_output: bool

    @abstractmethod
    def forward(
        self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None
    ) -> Tensor | MixerOutput:
        """Mix `x`.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True = real token; None when all are real.
            carry: what the layer below handed on.

        Returns:
            (B, L, D), bare or in a `MixerOutput`.
        """

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Parameters, by their name in this module, that the optimiser must treat differently.
        Default: none.
        """
        return {}

    @property
    def caches(self) -> bool:
        """Whether `prefill` and `step` work: a mixer may offer them where it is causal, or sees
        another sequence.
        """
        return False

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> Cache:
        """What decoding needs of another sequence, built once; `forward(x, context=context)` says
        what comes of it.

        Args:
            context: (B, Lk, D).
            keep: (B, Lk) bool, True = real token.
        """
        raise PluginError(f"{type(self).__name__} sees no other sequence")

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        """What `forward` returns for the start of a sequence, and the cache to go on with.

        With cross-attention it also takes `memory`, what `memory` returned, and `step` the same
        again.

        Args:
            x: (B, L, D).
            keep: (B, L) bool; real tokens first, padding after them, so that each sample has its
                own length.

        Returns:
            (B, L, D), meaningless at padding, and the cache.
        """
        raise PluginError(f"{type(self).__name__} offers no decode cache")

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """The output at the next position of each sample: what `forward` over the whole sequence
        gives there.

        Args:
            x: (B, D), the next token of each sample.
            cache: from `prefill` or the last step; left as it is.

        Returns:
            (B, D) and the new cache.
        """
        raise PluginError(f"{type(self).__name__} offers no decode cache")


class AttentionCore(nn.Module, ABC):
    """Attention without its projections, which `AttentionMixer` owns. Built as `cls(config, site)`.

    All cores share the projections' names and shapes, so weights of a softmax model load into any
    of them.
    """

    loss_weights: Mapping[str, float] = {}

    @abstractmethod
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
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
        """As `TokenMixer.caches`; where it sees another sequence, whether no query's output
        depends on the others.
        """
        return False

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        """What `read` needs of another sequence, built once. Default: its keys and values as they
        are.

        Args:
            k: (B, H, Lk, E).
            v: (B, H, Lk, Ev).
            keep: (B, Lk) bool, True = real token.
        """
        if keep is None:
            return {"k": k, "v": v}
        return {"k": k, "v": v, "keep": keep}

    def read(self, q: Tensor, memory: Cache, *, keep: Tensor | None = None) -> Tensor | MixerOutput:
        """What `forward` returns for queries (B, H, Lq, E) and what `memory` kept. Default: a
        call of it.
        """
        return self(q, memory["k"], memory["v"], query_keep=keep, key_keep=memory.get("keep"))

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`: q, k, v (B, H, L, E) to (B, H, L, Ev) and the cache."""
        raise PluginError(f"{type(self).__name__} offers no decode cache")

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`: q, k, v (B, H, E) to (B, H, Ev) and the new cache."""
        raise PluginError(f"{type(self).__name__} offers no decode cache")


class AttentionMixer(TokenMixer):
    """Attention around a core: query, key, value and output projections, query and key norms,
    rotary positions.

    Args:
        core: the attention core.
        site: where it stands.
        config: the projections' parameters; their defaults where None.
    """

    def __init__(self, core: AttentionCore, site: Site, config: AttentionConfig | None = None):
        super().__init__()
        config = config or AttentionConfig()
        self.num_heads = site.num_heads
        self.crosses = site.role == "cross"
        self.core = core
        self.query = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.key = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.value = nn.Linear(site.dim, site.dim, bias=config.bias)
        self.out = nn.Linear(site.dim, site.dim, bias=config.bias)
        norm = {"none": nn.Identity, "layer": nn.LayerNorm, "rms": nn.RMSNorm}[config.qk_norm]
        self.query_norm = norm(site.head_dim)
        self.key_norm = norm(site.head_dim)
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
            PluginError: there is a context at a site with another role than `cross`.
        """
        if context is None:
            context = x
            context_keep = keep
        elif not self.crosses:
            raise PluginError("another sequence can be seen at a site with the role cross only")
        q = self._queries(x, _positions(x, keep))
        k, v = self._keys_and_values(context, _positions(context, context_keep))
        mixed = as_output(self.core(q, k, v, query_keep=keep, key_keep=context_keep))
        return MixerOutput(self._joined(mixed.out), mixed.losses, mixed.carry)

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return {f"core.{name}": rule for name, rule in self.core.parameter_rules().items()}

    @property
    def caches(self) -> bool:
        return self.core.caches

    def memory(self, context: Tensor, *, keep: Tensor | None = None) -> Cache:
        return self.core.memory(
            *self._keys_and_values(context, _positions(context, keep)), keep=keep
        )

    def prefill(
        self, x: Tensor, *, keep: Tensor | None = None, memory: Cache = None
    ) -> tuple[Tensor, Cache]:
        """As `TokenMixer.prefill`; `memory` is that of another sequence, None for
        self-attention.
        """
        positions = _positions(x, keep)
        q = self._queries(x, positions)
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        cache: dict[str, Cache] = {"position": lengths}
        if memory is None:
            out, cache["core"] = self.core.prefill(
                q, *self._keys_and_values(x, positions), keep=keep
            )
        else:
            out = as_output(self.core.read(q, memory, keep=keep)).out
        return self._joined(out), cache

    def step(self, x: Tensor, cache: Cache, *, memory: Cache = None) -> tuple[Tensor, Cache]:
        """As `TokenMixer.step`; `memory` is that of another sequence, None for self-attention."""
        token = x[:, None]
        positions = cache["position"][:, None]
        q = self._queries(token, positions)
        after = {"position": cache["position"] + 1}
        if memory is None:
            k, v = self._keys_and_values(token, positions)
            out, after["core"] = self.core.step(q[:, :, 0], k[:, :, 0], v[:, :, 0], cache["core"])
            return self.out(out.flatten(1)), after
        return self._joined(as_output(self.core.read(q, memory)).out)[:, 0], after

    def _queries(self, x: Tensor, positions: Tensor) -> Tensor:
        return self._turned(self.query_norm(self._split(self.query(x))), positions)

    def _keys_and_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        k = self._turned(self.key_norm(self._split(self.key(x))), positions)
        return k, self._split(self.value(x))

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.rotary:
            return rotate(x, positions)
        return x

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
    """Rotary positions: channel i and channel E/2 + i are turned together by position / 10000^(2i /
    E).

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
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    left = x[..., :half]
    right = x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
