"""x_transformers' Attention as a mixer."""

from x_transformers.x_transformers import Attention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class PlainAttention(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = Attention(
            site.dim, heads=site.num_heads, dim_head=site.head_dim, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
