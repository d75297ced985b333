"""nystrom_attention.NystromAttention as a mixer."""

from nystrom_attention import NystromAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Nystrom(TokenMixer):
    Config = MixerConfig
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()
        self.inner = NystromAttention(
            site.dim, heads=site.num_heads, dim_head=site.head_dim, num_landmarks=16
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
