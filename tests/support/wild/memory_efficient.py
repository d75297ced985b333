"""memory_efficient_attention_pytorch.Attention as a mixer."""

from memory_efficient_attention_pytorch import Attention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Efficient(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = Attention(
            dim=site.dim,
            heads=site.num_heads,
            dim_head=site.head_dim,
            causal=site.causal,
            memory_efficient=True,
            q_bucket_size=32,
            k_bucket_size=32,
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
