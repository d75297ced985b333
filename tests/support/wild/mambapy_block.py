"""mambapy's MambaBlock as a mixer."""

from mambapy.mamba import MambaBlock, MambaConfig

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Mamba(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = MambaBlock(MambaConfig(d_model=site.dim, n_layers=1))

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
