"""minGRU_pytorch's minGRU and minLSTM as mixers."""

from minGRU_pytorch import minGRU
from minGRU_pytorch.minLSTM import minLSTM

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class MinGru(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = minGRU(site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)


class MinLstm(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = minLSTM(site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
