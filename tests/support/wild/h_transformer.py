"""h_transformer_1d's HAttention1D as a mixer."""

import torch
from h_transformer_1d.h_transformer_1d import HAttention1D
from torch.nn.functional import pad

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Hierarchical(TokenMixer):
    Config = MixerConfig
    facts = Facts(padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = HAttention1D(
            site.dim, heads=site.num_heads, dim_head=site.head_dim, block_size=16
        )

    def forward(self, x, *, keep=None, carry=None):
        length = x.shape[1]
        more = max(0, 4 * 16 - length)  # it asks for more than two blocks
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        out = self.inner(pad(x, (0, 0, 0, more)), mask=pad(keep, (0, more)))
        return out[:, :length]
