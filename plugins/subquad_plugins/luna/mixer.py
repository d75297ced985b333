"""Luna: P' = Attention(P, X, X) packs, Y = Attention(X, P', P') unpacks; P goes on to the next
layer.

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
        self.num_heads = site.num_heads
        dim = site.dim
        self.readers = Readers(config.rank, site)
        self.pack_query = nn.Linear(dim, dim)
        self.pack_key = nn.Linear(dim, dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        if config.share_values:
            self.pack_value = None
            self.value = None
        else:
            self.pack_value = nn.Linear(dim, dim)
            self.value = nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        readers = self.readers(x, carry)
        k = self.pack_key(x)
        if self.pack_value is None:
            v = k
        else:
            v = self.pack_value(x)
        packed = read_real(self.pack_query(readers), k, v, self.num_heads, keep)
        k = self.key(packed)
        if self.value is None:
            v = k
        else:
            v = self.value(packed)
        out = self.out(read_real(self.query(x), k, v, self.num_heads))
        return MixerOutput(out, carry=self.readers.after(readers, packed))
