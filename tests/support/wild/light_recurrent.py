"""light_recurrent_unit_pytorch's LightRecurrentUnitLayer as a mixer."""

from light_recurrent_unit_pytorch import LightRecurrentUnitLayer

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class LightRecurrent(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = LightRecurrentUnitLayer(site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
