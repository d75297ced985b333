"""mega_pytorch's MegaLayer as a mixer."""

from mega_pytorch.mega_pytorch import MegaLayer

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Mega(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", leak=1e-12)

    def __init__(self, config, site):
        super().__init__()
        self.inner = MegaLayer(
            dim=site.dim, ema_heads=4, attn_dim_qk=8, attn_dim_value=32, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
