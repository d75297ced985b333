"""What an encoder reads: the text and further modalities, embedded and joined along the length.

Letters: B batch, L length of all parts together, D model width, M modalities.
Reference: Kiruluta et al., arXiv 2111.15473v2 (MDFWA), its multi-modal fusion: [K1; K2; ...].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.errors import ConfigError
from subquad.nn import Batch
from subquad_plugins.encoder.embed import Embedding, build_positions
from subquad_plugins.encoder_decoder import Config
from subquad_plugins.numerics.dropout import Dropout

TEXT = "inputs"


class Sources(nn.Module):
    """The parts, each with positions from its own start, and, where there are several, an embedding
    of its modality.

    A part of ids goes through the token table; one of numbers has a projection.

    Args:
        config: see `Config`.
        spec: which parts there are.

    Raises:
        ConfigError: `modalities` has no effect.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__()
        others = sorted(name for name in spec.arrays if name.startswith(f"{TEXT}_"))
        if not others and config.modalities != "after":
            raise ConfigError(
                f"encoder-decoder: modalities {config.modalities} has no effect, as the data set "
                "has the text alone; leave it at after"
            )
        self.parts = {"after": [TEXT, *others], "before": [*others, TEXT], "none": [TEXT]}[
            config.modalities
        ]
        arrays = {name: spec.arrays[name] for name in self.parts}
        lengths = [spec.lengths[array.axes[0]] for array in arrays.values()]
        self.length = sum(lengths)
        self.project = nn.ModuleDict(
            {
                name: nn.Linear(spec.lengths[array.axes[1]], config.dim)
                for name, array in arrays.items()
                if array.axes[1:]
            }
        )
        self.positions = build_positions(config, max(lengths))
        several = len(self.parts) > 1
        if several:
            self.modality = nn.Parameter(
                config.embedding_init * torch.randn(len(self.parts), config.dim)
            )
        else:
            self.modality = None
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch, embedding: Embedding) -> tuple[Tensor, Tensor]:
        """(B, L, D), and which positions are real, (B, L)."""
        parts = []
        for number, name in enumerate(self.parts):
            if name in self.project:
                x = self.project[name](batch[name])
            else:
                x = embedding.tokens(batch[name])
            if self.positions is not None:
                x = self.positions(x)
            parts.append(x if self.modality is None else x + self.modality[number])
        keep = [batch[name.replace(TEXT, "keep", 1)] for name in self.parts]
        return self.dropout(torch.cat(parts, 1)), torch.cat(keep, 1)
