"""etsformer_pytorch's MHESA as a mixer."""

from etsformer_pytorch.etsformer_pytorch import MHESA

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class ExponentialSmoothing(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always", leak=1e-12)

    def __init__(self, config, site):
        super().__init__()
        self.inner = MHESA(dim=site.dim, heads=site.num_heads)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
