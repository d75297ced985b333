"""One encoder layer: token mixer and feed-forward part, each with its residual path and layer norm.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import AttentionMixer, MixerOutput, TokenMixer, as_output
from subquad_plugins.encoder import TransformerConfig
from subquad_plugins.numerics.dropout import Dropout

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "none": nn.Identity}


def layer_norm(config: TransformerConfig) -> nn.Module:
    """The norm of one residual path."""
    return nn.Identity() if config.norm == "none" else nn.LayerNorm(config.dim)


class EncoderLayer(nn.Module):
    """(B, L, D) to (B, L, D), and what the mixer returned besides.

    Args:
        config: see `TransformerConfig`.
        mixer: acts along the sequence.
    """

    def __init__(self, config: TransformerConfig, mixer: TokenMixer):
        super().__init__()
        width = config.ffn_dim or 4 * config.dim
        self.pre_norm = config.norm == "pre"
        self.mixer = mixer
        self.mixer_norm = layer_norm(config)
        self.mixer_dropout = Dropout(config.dropout)
        self.ffn_norm = layer_norm(config)
        self.ffn = nn.Sequential(
            nn.Linear(config.dim, width),
            ACTIVATIONS[config.activation](),
            Dropout(config.dropout),
            nn.Linear(width, config.dim),
            Dropout(config.dropout),
        )

    @property
    def mixers(self) -> list[TokenMixer]:
        """Its mixers, in the order of their results."""
        return [self.mixer]

    def forward(
        self, x: Tensor, keep: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, MixerOutput]:
        result = mixed(self.mixer, self.given(self.mixer_norm, x), keep=keep, carry=carry)
        return self.fed(self.joined(self.mixer_norm, x, self.mixer_dropout(result.out))), result

    def given(self, norm: nn.Module, x: Tensor) -> Tensor:
        """What a part is given."""
        if self.pre_norm:
            return norm(x)
        return x

    def joined(self, norm: nn.Module, x: Tensor, part: Tensor) -> Tensor:
        """The residual sum of x and what a part gives."""
        if self.pre_norm:
            return x + part
        return norm(x + part)

    def fed(self, x: Tensor) -> Tensor:
        """x after the feed-forward part."""
        return self.joined(self.ffn_norm, x, self.ffn(self.given(self.ffn_norm, x)))


def run_layers(
    layers: Sequence[Any], x: Tensor, keep: Tensor | None, **other: Any
) -> tuple[Tensor, list[MixerOutput]]:
    """All layers, one after the other, and what each of their mixers returned.

    A carry goes to a layer with the same kind of mixer only: another one would not know it.

    Args:
        layers: `EncoderLayer`s, or what is called like them.
        x: (B, L, D).
        keep: (B, L) bool, True = real token; None where mixers are not told.
        other: what each layer is given besides.
    """
    carry = None
    kind = None
    results = list[MixerOutput]()
    for layer in layers:
        known = method(layer.mixer) is kind
        x, own, *more = layer(x, keep, carry if known else None, **other)
        carry = own.carry
        kind = method(layer.mixer)
        results += [own, *more]
    return x, results


def all_mixers(layers: Iterable[Any]) -> list[TokenMixer]:
    """The mixers of layers, in the order of their results."""
    return [mixer for layer in layers for mixer in layer.mixers]


def mixed(mixer: Any, x: Tensor, **given: Any) -> MixerOutput:
    """What a mixer makes of x, checked."""
    result = mixer(x, **given)
    if torch.compiler.is_compiling():
        return as_output(result)
    return checked_output(mixer, result, x)


def method(mixer: TokenMixer) -> type[nn.Module]:
    """The class of a mixer, or of its attention core: what a plugin is."""
    return type(mixer.core if isinstance(mixer, AttentionMixer) else mixer)


def checked_output(mixer: TokenMixer, result: Any, x: Tensor) -> MixerOutput:
    """What a mixer returned for `x`, once it is known to keep the contract.

    Raises:
        PluginError: names the mixer's class and what is wrong with its result.
    """
    name = method(mixer).__name__
    if not isinstance(result, (Tensor, MixerOutput)):
        raise PluginError(
            f"mixer {name} returned a {type(result).__name__}, not a Tensor or a MixerOutput"
        )
    output = as_output(result)
    if output.out.shape != x.shape:
        raise PluginError(
            f"mixer {name} returned shape {tuple(output.out.shape)} "
            f"for an input of {tuple(x.shape)}"
        )
    autocast = torch.is_autocast_enabled(x.device.type) and output.out.is_floating_point()
    if output.out.dtype != x.dtype and not autocast:
        raise PluginError(f"mixer {name} returned {output.out.dtype} for an input of {x.dtype}")
    for loss, value in output.losses.items():
        if value.shape != x.shape[:1]:
            raise PluginError(
                f"mixer {name}: loss {loss!r} has shape {tuple(value.shape)}, not "
                f"({len(x)},), one per sample"
            )
    return output
