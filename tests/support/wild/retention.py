"""yet_another_retnet's MultiScaleRetention as a mixer."""

from yet_another_retnet.retention import MultiScaleRetention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Retention(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = MultiScaleRetention(site.dim, site.num_heads)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, x, x)[0]
