"""local_attention.LocalMHA as a mixer."""

from local_attention import LocalMHA

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Local(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = LocalMHA(
            dim=site.dim,
            window_size=16,
            heads=site.num_heads,
            dim_head=site.head_dim,
            causal=site.causal,
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
