"""rela_transformer's ReLA as a mixer."""

from rela_transformer.rela_transformer import ReLA

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Rela(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = ReLA(
            dim=site.dim, heads=site.num_heads, dim_head=site.head_dim, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
