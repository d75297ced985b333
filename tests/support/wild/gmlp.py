"""g_mlp_pytorch's gMLPBlock as a mixer."""

from g_mlp_pytorch.g_mlp_pytorch import gMLPBlock

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Gmlp(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always", max_length="site")

    def __init__(self, config, site):
        super().__init__()
        self.longest = site.max_len
        self.inner = gMLPBlock(dim=site.dim, dim_ff=2 * site.dim, seq_len=site.max_len, causal=True)

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] > self.longest:
            raise PluginError(f"{x.shape[1]} tokens, and at most {self.longest} are taken")
        return self.inner(x)
