"""One encoder layer: token mixer and feed-forward part, each with its residual path and layer norm.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import AttentionMixer, MixerOutput, TokenMixer, as_output
from subquad_plugins.encoder import Config

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "none": nn.Identity}


class EncoderLayer(nn.Module):
    """(B, L, D) to (B, L, D), and what the mixer returned besides.

    Args:
        config: see `Config`.
        mixer: acts along the sequence.
    """

    def __init__(self, config: Config, mixer: TokenMixer):
        super().__init__()
        width = config.ffn_dim or 4 * config.dim
        self.pre_norm = config.norm == "pre"
        self.mixer = mixer
        self.mixer_norm = nn.LayerNorm(config.dim)
        self.mixer_dropout = nn.Dropout(config.dropout)
        self.ffn_norm = nn.LayerNorm(config.dim)
        self.ffn = nn.Sequential(
            nn.Linear(config.dim, width),
            ACTIVATIONS[config.activation](),
            nn.Dropout(config.dropout),
            nn.Linear(width, config.dim),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor, keep: Tensor | None = None, carry: Any = None) -> tuple[Tensor, MixerOutput]:
        if self.pre_norm:
            result = self._mix(self.mixer_norm(x), keep, carry)
            x = x + self.mixer_dropout(result.out)
            return x + self.ffn(self.ffn_norm(x)), result
        result = self._mix(x, keep, carry)
        x = self.mixer_norm(x + self.mixer_dropout(result.out))
        return self.ffn_norm(x + self.ffn(x)), result

    def _mix(self, x: Tensor, keep: Tensor | None, carry: Any) -> MixerOutput:
        result = self.mixer(x, keep=keep, carry=carry)
        return as_output(result) if torch.compiler.is_compiling() else checked_output(self.mixer, result, x)


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
        raise PluginError(f"mixer {name} returned a {type(result).__name__}, not a Tensor or a MixerOutput")
    output = as_output(result)
    if output.out.shape != x.shape:
        raise PluginError(f"mixer {name} returned shape {tuple(output.out.shape)} for an input of {tuple(x.shape)}")
    autocast = torch.is_autocast_enabled(x.device.type) and output.out.is_floating_point()
    if output.out.dtype != x.dtype and not autocast:
        raise PluginError(f"mixer {name} returned {output.out.dtype} for an input of {x.dtype}")
    for loss, value in output.losses.items():
        if value.shape != x.shape[:1]:
            raise PluginError(
                f"mixer {name}: loss {loss!r} has shape {tuple(value.shape)}, not ({len(x)},), one per sample"
            )
    return output
