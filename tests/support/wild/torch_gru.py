"""torch.nn.GRU as a mixer."""

from torch import nn

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Gru(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = nn.GRU(site.dim, site.dim, batch_first=True)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)[0]
