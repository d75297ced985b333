"""flash_pytorch's FLASH and GAU as a mixer."""

from flash_pytorch import FLASH, GAU

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Flash(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = FLASH(dim=site.dim, group_size=16, query_key_dim=16, causal=site.causal)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)


class GatedUnit(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = GAU(dim=site.dim, query_key_dim=16, causal=site.causal)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
