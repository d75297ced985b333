"""routing_transformer's SelfAttention as a mixer."""

import torch
from routing_transformer.routing_transformer import SelfAttention
from torch.nn.functional import pad

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig

WINDOW = 16


class Routing(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True, stateful=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = SelfAttention(
            site.dim, 1, 4 * WINDOW, site.num_heads, 0, WINDOW, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        length = x.shape[1]
        more = max(4 * WINDOW - length, -length % WINDOW)
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        out, _ = self.inner(pad(x, (0, 0, 0, more)), input_mask=pad(keep, (0, more)))
        return out[:, :length]
