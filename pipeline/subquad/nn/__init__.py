"""The torch half of the plugin contract: token mixers, attention cores, backbones and tasks.

In: tensors (B, L, dim). Out: the same, losses, metrics. Imports torch and the other half of the
contract. Knows of no experiment; plugins build on it.
"""

from __future__ import annotations

from subquad.nn.attention import AttentionMixer, MultiheadAttention, rotate
from subquad.nn.decoding import Decoder, TokenScores, token_scores
from subquad.nn.mixer import (
    AttentionCore,
    Cache,
    MixerOutput,
    ParameterRule,
    TokenMixer,
    as_layer,
    as_output,
)
from subquad.nn.model import (
    Backbone,
    BackboneContext,
    Batch,
    Example,
    Imported,
    ModelOutput,
    Task,
    gather_losses,
)

__all__ = [
    "AttentionCore",
    "AttentionMixer",
    "Backbone",
    "BackboneContext",
    "Batch",
    "Cache",
    "Decoder",
    "Example",
    "Imported",
    "MixerOutput",
    "ModelOutput",
    "MultiheadAttention",
    "ParameterRule",
    "Task",
    "TokenMixer",
    "TokenScores",
    "as_layer",
    "as_output",
    "gather_losses",
    "rotate",
    "token_scores",
]
