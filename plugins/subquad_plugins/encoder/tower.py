"""What turns a sequence into one feature vector: embedding, layers, final norm, pooling. Networks
add a head to it.

Letters: B batch, L length, P prefix tokens, C channels, D model width, F features.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import Backbone, BackboneContext, MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.encoder import Config, TransformerConfig
from subquad_plugins.encoder.embed import Embedding, check_init, num_prefix_tokens
from subquad_plugins.encoder.layer import ACTIVATIONS, EncoderLayer, all_mixers, run_layers
from subquad_plugins.encoder.pool import POOLS, check_labels, check_length
from subquad_plugins.numerics.dropout import Dropout


class Tower(Backbone):
    """A transformer encoder without a head; a network is one with a head and a `forward`.

    Args:
        config: see `Config`.
        context: data description and how mixers are built.

    Raises:
        ConfigError: the head, or a setting of the embedding, does not suit the data set.
    """

    def __init__(self, config: Config, context: BackboneContext):
        super().__init__()
        check_labels(config, context.spec)
        check_init(config, context.spec)
        self.config = config
        self.max_len = context.spec.max_len
        # Without a mask a mixer may take a quicker path, the same for every batch.
        self.mask_mixer = config.mask_mixer and not context.spec.equal_length
        prefix = num_prefix_tokens(config)
        self.embedding = Embedding(config, context.spec, self.max_len, prefix)
        if self.max_len:
            longest = self.max_len + prefix
        else:
            longest = 0
        sites = layer_sites(
            config, config.num_layers, max_len=longest, num_prefix_tokens=prefix, seed=context.seed
        )
        self.blocks = nn.ModuleList(
            context.finish(EncoderLayer(config, context.make_mixer(site))) for site in sites
        )
        self.final = nn.Sequential(
            nn.LayerNorm(config.dim) if config.final_norm else nn.Identity(),
            ACTIVATIONS[config.final_activation](),
            Dropout(config.head_dropout),
        )

    @property
    def mixers(self) -> list[TokenMixer]:
        """The mixer of each layer."""
        return all_mixers(self.blocks)

    def features(self, inputs: Tensor, keep: Tensor) -> tuple[Tensor, list[MixerOutput]]:
        """`inputs` (B, L, C) float or (B, L) int64 and `keep` (B, L) bool to (B, F), and what each
        mixer returned.

        With head `each` the features are (B, L, F).
        """
        x, keep = self.embed(inputs, keep)
        x, results = self.encode(x, keep)
        return self.pool(x, keep), results

    def embed(self, inputs: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded positions (B, P + L, D) and which of them are real, (B, P + L)."""
        check_length(self.config, inputs.shape[1], self.max_len)
        return self.embedding(inputs), F.pad(keep, (num_prefix_tokens(self.config), 0), value=True)

    def encode(self, x: Tensor, keep: Tensor) -> tuple[Tensor, list[MixerOutput]]:
        """The layers and the final norm: (B, P + L, D) to the same, and what each mixer
        returned.
        """
        x, results = run_layers(list(self.blocks), x, keep if self.mask_mixer else None)
        return self.final(x), results

    def pool(self, x: Tensor, keep: Tensor) -> Tensor:
        """(B, P + L, D) to (B, F); for head `each` to (B, L, F)."""
        return POOLS[self.config.head](x, keep)


def layer_sites(config: TransformerConfig, count: int, **where: Any) -> list[Site]:
    """Where the mixers of a stack of `count` layers stand; `where` is what they share."""
    shared = {"dim": config.dim, "num_heads": config.num_heads, "num_layers": count, **where}
    return [Site(layer_index=index, **shared) for index in range(count)]
