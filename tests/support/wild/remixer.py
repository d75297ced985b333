"""remixer_pytorch's RemixerBlock as a mixer."""

from remixer_pytorch.remixer_pytorch import RemixerBlock

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Remixer(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always", max_length="site")

    def __init__(self, config, site):
        super().__init__()
        self.longest = site.max_len
        self.inner = RemixerBlock(site.dim, site.max_len, causal=True)

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] > self.longest:
            raise PluginError(f"{x.shape[1]} tokens, and at most {self.longest} are taken")
        return self.inner(x)
