"""Luna: P' = Attention(P, X, X) packs, Y = Attention(X, P', P') unpacks; P goes on to the next layer.

Letters: B batch, L length, D model width, r packed tokens.
Reference: Ma et al. 2021, Luna, Eq. 6 to 8; projections as in the authors' code.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.luna import Config
from subquad_plugins.numerics.packs import Readers, read_real


class Luna(TokenMixer):
    """Luna attention.

    Args:
        config: see `Config`.
        site: where it stands; the first layer has the learned tokens.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.num_heads, dim = site.num_heads, site.dim
        self.readers = Readers(config.rank, site)
        self.pack_query, self.pack_key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.query, self.key, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.pack_value = None if config.share_values else nn.Linear(dim, dim)
        self.value = None if config.share_values else nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        readers = self.readers(x, carry)
        k = self.pack_key(x)
        v = k if self.pack_value is None else self.pack_value(x)
        packed = read_real(self.pack_query(readers), k, v, self.num_heads, keep)
        k = self.key(packed)
        v = k if self.value is None else self.value(packed)
        out = self.out(read_real(self.query(x), k, v, self.num_heads))
        return MixerOutput(out, carry=self.readers.after(readers, packed))
