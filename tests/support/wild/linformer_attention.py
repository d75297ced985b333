"""linformer.LinformerSelfAttention as a mixer."""

from linformer import LinformerSelfAttention

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Linformer(TokenMixer):
    Config = MixerConfig
    facts = Facts(max_length="site")

    def __init__(self, config, site):
        super().__init__()
        self.longest = site.max_len
        self.inner = LinformerSelfAttention(site.dim, site.max_len, k=16, heads=site.num_heads)

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] > self.longest:
            raise PluginError(f"{x.shape[1]} tokens, and at most {self.longest} are taken")
        return self.inner(x)
