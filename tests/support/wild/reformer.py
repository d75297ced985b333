"""reformer_pytorch.LSHSelfAttention as a mixer."""

import torch
from reformer_pytorch import LSHSelfAttention
from torch.nn.functional import pad

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig

BUCKET = 16


class Reformer(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="optional", padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = LSHSelfAttention(
            site.dim, heads=site.num_heads, bucket_size=BUCKET, n_hashes=2, causal=site.causal
        )

    def forward(self, x, *, keep=None, carry=None):
        length = x.shape[1]
        more = -length % (2 * BUCKET)
        if keep is None:
            keep = torch.ones_like(x[..., 0], dtype=torch.bool)
        out = self.inner(pad(x, (0, 0, 0, more)), input_mask=pad(keep, (0, more)))
        return out[:, :length]
