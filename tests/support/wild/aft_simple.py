"""aft_pytorch.AFTSimple as a mixer."""

from aft_pytorch import AFTSimple

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class AftSimple(TokenMixer):
    Config = MixerConfig
    facts = Facts(permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = AFTSimple(site.max_len, site.dim, hidden_dim=site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
