"""torch.nn.MultiheadAttention as a mixer."""

from torch import nn

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class MultiheadAttention(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="never", padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = nn.MultiheadAttention(site.dim, site.num_heads, batch_first=True)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, x, x, key_padding_mask=None if keep is None else ~keep)[0]
