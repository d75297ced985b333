"""linear_attention.LinearSelfAttention as a mixer."""

from linear_attention import LinearSelfAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Linear(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = LinearSelfAttention(site.dim, site.num_heads, causal=site.causal)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, input_mask=keep)
