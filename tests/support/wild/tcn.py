"""pytorch_tcn.TCN as a mixer."""

from pytorch_tcn import TCN

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Tcn(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = TCN(site.dim, [site.dim, site.dim], causal=True, input_shape="NLC")

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
