"""The encoder-decoder network: layers that read, layers that write and see what was read, a head.

Letters: B batch, L source length, T target length, D model width, V vocabulary.
Reference: Vaswani et al. 2017, section 3.
"""

from __future__ import annotations

from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn

from subquad.data import NO_LABEL
from subquad.errors import ConfigError
from subquad.nn import (
    BackboneContext,
    Batch,
    Cache,
    MixerOutput,
    ModelOutput,
    gather_losses,
    token_scores,
)
from subquad_plugins.decoder.backbone import Writer
from subquad_plugins.decoder.layer import DecoderLayer
from subquad_plugins.encoder.layer import EncoderLayer, all_mixers, method, run_layers
from subquad_plugins.encoder.tower import layer_sites
from subquad_plugins.encoder_decoder import Config
from subquad_plugins.encoder_decoder.sources import Sources


class EncoderDecoder(Writer):
    """An encoder, and a decoder that sees what it makes of a text.

    Args:
        config: see `Config`.
        context: data description and how mixers are built.

    Raises:
        ConfigError: the data set names no end token, `modalities` has no effect, or a cross mixer
            cannot decode.
    """

    def __init__(self, config: Config, context: BackboneContext):
        spec = context.spec
        make = context.make_mixer
        longest = context.spec.lengths["target"]
        if not spec.end_token:
            raise ConfigError(
                "encoder-decoder: the data set names no end_token, which the decoder starts from"
            )
        super().__init__(config, context, longest)
        self.end_token = spec.end_token
        self.sources = Sources(config, spec)
        if config.final_norm:
            self.source_norm = nn.LayerNorm(config.dim)
        else:
            self.source_norm = nn.Identity()
        count = config.decoder_layers or config.num_layers
        source = self.sources.length
        seed = context.seed
        own = layer_sites(config, count, role="decoder", causal=True, max_len=longest, seed=seed)
        across = layer_sites(
            config, count, role="cross", max_len=longest, context_len=source, seed=seed
        )
        reading = (
            EncoderLayer(config, make(site))
            for site in layer_sites(config, config.num_layers, max_len=source, seed=seed)
        )
        writing = (
            DecoderLayer(config, make(own_site), make(cross_site))
            for own_site, cross_site in zip(own, across, strict=True)
        )
        self.num_reading = config.num_layers
        self.blocks = nn.ModuleList(map(context.finish, chain(reading, writing)))
        if idle := [layer.cross for layer in self.writing if not layer.cross.caches]:
            raise ConfigError(
                f"encoder-decoder: mixer {method(idle[0]).__name__} offers no "
                "decode cache across two sequences, so what it gives at a "
                "position may depend on later ones; use another for role cross"
            )

    @property
    def reading(self) -> list[EncoderLayer]:
        """The encoder's layers."""
        return cast(list[EncoderLayer], list(self.blocks)[: self.num_reading])

    @property
    def writing(self) -> list[DecoderLayer]:
        return super().writing[self.num_reading :]

    def forward(self, batch: Batch) -> ModelOutput:
        """`inputs`, `keep` (B, L), and `labels` (B, T), to the `TokenScores` of the labels.

        The decoder is given the end token and the labels but the last, whatever it would have
        written itself.
        """
        context, context_keep, read = self.read(batch)
        labels = batch["labels"]
        real = labels != NO_LABEL
        before = torch.cat(
            [torch.full_like(labels[:, :1], self.end_token), labels[:, :-1]], 1
        ).masked_fill(~real, 0)
        hidden, written = self.write(before, real, context=context, context_keep=context_keep)
        weight, bias = self.head_weights()
        scores = token_scores(hidden, weight, labels, bias)
        return ModelOutput(scores, *gather_losses(all_mixers(self.blocks), read + written))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor, list[MixerOutput]]:
        """The encoded source (B, L, D), which of its positions are real (B, L), and what each
        mixer returned.
        """
        x, keep = self.sources(batch, self.embedding)
        x, results = run_layers(self.reading, x, keep)
        return self.source_norm(x), keep, results

    def start(self, batch: Batch) -> tuple[Tensor, Cache, Cache]:
        context, context_keep, _ = self.read(batch)
        first = torch.full_like(batch["inputs"][:, :1], self.end_token)
        return self.begin(first, torch.ones_like(first, dtype=torch.bool), context, context_keep)
