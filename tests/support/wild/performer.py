"""performer_pytorch.SelfAttention as a mixer."""

from performer_pytorch import SelfAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Performer(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = SelfAttention(
            site.dim, causal=site.causal, heads=site.num_heads, dim_head=site.head_dim
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
