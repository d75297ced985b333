"""timm's Attention as a mixer."""

from timm.layers import Attention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class TimmAttention(TokenMixer):
    Config = MixerConfig
    facts = Facts(permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = Attention(site.dim, num_heads=site.num_heads)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
