"""compositional_attention_pytorch.CompositionalAttention as a mixer."""

from compositional_attention_pytorch import CompositionalAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Compositional(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = CompositionalAttention(
            dim=site.dim, dim_head=site.head_dim, num_searches=site.num_heads, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
