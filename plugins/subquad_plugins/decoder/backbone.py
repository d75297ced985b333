"""The network that writes: decoder layers, the head, and decoding with the mixers' caches, or
without.

Letters: B batch, L length, D model width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import (
    BackboneContext,
    Batch,
    Cache,
    Decoder,
    MixerOutput,
    ModelOutput,
    gather_losses,
    token_scores,
)
from subquad_plugins.decoder import Config
from subquad_plugins.decoder.layer import DecoderLayer
from subquad_plugins.encoder.embed import Embedding
from subquad_plugins.encoder.layer import all_mixers, run_layers
from subquad_plugins.encoder.tower import layer_sites


class Writer(Decoder):
    """Decoder layers between a token table and a head. A network adds what they see besides, and
    `forward`.

    Where every mixer has a decode cache, the state is the caches and the number of tokens so far.
    Where one has none, it is the tokens so far, and each step computes all of them again.

    Args:
        config: see `Config`.
        context: data description and how mixers are built.
        length: L of the longest text.
    """

    def __init__(self, config: Config, context: BackboneContext, length: int):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, context.spec, length)
        if config.final_norm:
            self.final = nn.LayerNorm(config.dim)
        else:
            self.final = nn.Identity()
        self.num_outputs = context.num_outputs
        if config.tied:
            self.head = None
        else:
            self.head = nn.Linear(config.dim, context.num_outputs)

    @property
    def writing(self) -> list[DecoderLayer]:
        """The decoder's layers."""
        return cast(list[DecoderLayer], list(self.blocks))

    @property
    def caches(self) -> bool:
        """Whether all mixers of the decoder have decode caches."""
        return all(mixer.caches for mixer in all_mixers(self.writing))

    def write(
        self, tokens: Tensor, keep: Tensor | None, **context: Tensor | None
    ) -> tuple[Tensor, list[MixerOutput]]:
        """(B, L) int64 and which of them are real to hidden states (B, L, D), and what each
        mixer returned.
        """
        x, results = run_layers(self.writing, self.embedding(tokens), keep, **context)
        return self.final(x), results

    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """(V, D), and the bias (V,) or None."""
        if self.head is not None:
            return self.head.weight, self.head.bias
        table: Any = self.embedding.project
        return table.weight[: self.num_outputs], None

    def begin(
        self,
        tokens: Tensor,
        keep: Tensor,
        context: Tensor | None = None,
        context_keep: Tensor | None = None,
    ) -> tuple[Tensor, Cache, Cache]:
        """As `Decoder.start`, of the tokens that a text begins with and of another sequence."""
        lengths = keep.sum(1)
        longest = max(1, *lengths.tolist())
        tokens = tokens[:, :longest]
        keep = keep[:, :longest]
        if context is None:
            memory = None
        else:
            memory = {"context": context, "keep": context_keep}
        if not self.caches:
            state = {"tokens": tokens, "position": lengths}
            return self._again(state, memory), state, memory
        if context is not None:
            memory = [layer.cross.memory(context, keep=context_keep) for layer in self.writing]
        x = self.embedding(tokens)
        caches = []
        for layer, remembered in zip(
            self.writing, memory or [None] * len(self.writing), strict=True
        ):
            x, cache = layer.prefill(x, keep, remembered)
            caches.append(cache)
        return self._logits(_last(x, lengths)), {"layers": caches, "position": lengths}, memory

    def step(self, tokens: Tensor, state: Cache, memory: Cache) -> tuple[Tensor, Cache]:
        position = state["position"]
        if not self.caches:
            longer = F.pad(state["tokens"], (0, 1)).scatter(1, position[:, None], tokens[:, None])
            state = {"tokens": longer, "position": position + 1}
            return self._again(state, memory), state
        x = self.embedding(tokens[:, None], position[:, None])[:, 0]
        caches = []
        memories = memory or [None] * len(self.writing)
        for layer, cache, remembered in zip(self.writing, state["layers"], memories, strict=True):
            x, cache = layer.step(x, cache, remembered)
            caches.append(cache)
        return self._logits(x), {"layers": caches, "position": position + 1}

    def _again(self, state: Cache, memory: Cache) -> Tensor:
        """Logits of the next token, everything computed once more."""
        tokens = state["tokens"]
        position = state["position"]
        keep = torch.arange(tokens.shape[1], device=tokens.device) < position[:, None]
        if memory is None:
            context = {}
        else:
            context = {"context": memory["context"], "context_keep": memory["keep"]}
        x, _ = run_layers(self.writing, self.embedding(tokens), keep, **context)
        return self._logits(_last(x, position))

    def _logits(self, x: Tensor) -> Tensor:
        """(B, D) to (B, V)."""
        return F.linear(self.final(x), *self.head_weights())


class LanguageModel(Writer):
    """A decoder alone.

    Args:
        config: see `Config`.
        context: data description and how mixers are built.
    """

    def __init__(self, config: Config, context: BackboneContext):
        spec = context.spec
        super().__init__(config, context, spec.max_len)
        # Without a mask a mixer may take a quicker path, the same for every batch.
        self.mask_mixer = not spec.equal_length
        where = {"role": "decoder", "causal": True, "max_len": spec.max_len, "seed": context.seed}
        sites = layer_sites(config, config.num_layers, **where)
        self.blocks = nn.ModuleList(
            context.finish(DecoderLayer(config, context.make_mixer(site))) for site in sites
        )

    def forward(self, batch: Batch) -> ModelOutput:
        """`inputs`, `keep` and `labels` (B, L) to the `TokenScores` of the labels."""
        hidden, results = self.write(batch["inputs"], batch["keep"] if self.mask_mixer else None)
        weight, bias = self.head_weights()
        scores = token_scores(hidden, weight, batch["labels"], bias)
        return ModelOutput(scores, *gather_losses(all_mixers(self.writing), results))

    def start(self, batch: Batch) -> tuple[Tensor, Cache, Cache]:
        return self.begin(batch["inputs"], batch["keep"])


def _last(x: Tensor, lengths: Tensor) -> Tensor:
    """The last real position of each sample: (B, L, D) to (B, D)."""
    return x[torch.arange(len(x), device=x.device), (lengths - 1).clamp_min(0)]
