"""taylor_series_linear_attention.TaylorSeriesLinearAttn as a mixer."""

from taylor_series_linear_attention import TaylorSeriesLinearAttn

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Taylor(TokenMixer):
    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = TaylorSeriesLinearAttn(site.dim, heads=site.num_heads, dim_head=site.head_dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
