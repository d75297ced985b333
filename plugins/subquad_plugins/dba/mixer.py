"""DBA: P' = Attention(P, X, X) packs, LN(Attention(P', P', P')) mixes, softmax over r of X W
unpacks.

Letters: B batch, L length, D model width, H heads, E head width, r packed tokens.
Reference: Qin et al. 2022, section 3; projections and norm as in the authors' code for time series.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.dba import Config
from subquad_plugins.numerics.packs import Readers, read_real


class DBA(TokenMixer):
    """Dynamic bilinear attention.

    Args:
        config: see `Config`.
        site: where it stands; the first layer has the learned tokens.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.num_heads = site.num_heads
        dim = site.dim
        inner = config.inner_dim
        self.readers = Readers(config.rank, site)
        self.pack_query = nn.Linear(dim, inner)
        self.pack_key = nn.Linear(dim, inner)
        self.query = nn.Linear(dim, inner)
        self.key = nn.Linear(dim, inner)
        self.pack_value = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.unpack = nn.Linear(dim, site.num_heads * config.rank)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        readers = self.readers(x, carry)
        heads = self.num_heads
        packed = read_real(
            self.pack_query(readers), self.pack_key(x), self.pack_value(x), heads, keep
        )
        mixed = self.norm(
            read_real(self.query(packed), self.key(packed), self.value(packed), heads)
        )
        mixed = mixed.unflatten(-1, (heads, -1)).transpose(1, 2)
        shares = self.unpack(x).unflatten(-1, (heads, -1)).transpose(1, 2).softmax(-1)
        out = (shares.to(mixed.dtype) @ mixed).transpose(1, 2).flatten(2)
        return MixerOutput(self.out(out), carry=self.readers.after(readers, packed))
