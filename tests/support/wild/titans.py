"""titans_pytorch.NeuralMemory as a mixer."""

from titans_pytorch import NeuralMemory

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Memory(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = NeuralMemory(dim=site.dim, chunk_size=16)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)[0]
