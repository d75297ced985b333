"""fast_transformer_pytorch's FastAttention as a mixer."""

import torch
from fast_transformer_pytorch.fast_transformer_pytorch import FastAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Fastformer(TokenMixer):
    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = FastAttention(site.dim, heads=site.num_heads, dim_head=site.head_dim)

    def forward(self, x, *, keep=None, carry=None):
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        return self.inner(x, mask=keep)
