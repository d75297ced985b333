"""Token mixers and attention cores: what a mixer is, returns, and offers for decoding.

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

from torch import Tensor, nn

from subquad.errors import PluginError

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
    if mixer.returns_output:
        return output
    return output.out


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
        followed: parameters whose defaults follow the site, as they are here; "" for none.
    """

    loss_weights: Mapping[str, float] = {}
    followed = ""
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
        kept = {"k": k, "v": v}
        if keep is not None:
            kept["keep"] = keep
        return kept

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
