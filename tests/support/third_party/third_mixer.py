"""A token mixer that also lets one sequence see another: the gated mean of all real tokens."""

import torch

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param


class Mean(TokenMixer):
    """Mean over the sequence, or over another one, gated by each token."""

    class Config(MixerConfig):
        gate: float = param(1.0, meaning="initial gate", ge=0.0, le=4.0)

    facts = Facts(padding_invariant=True, permutation_equivariant=True, cross=True, complexity="L")

    def __init__(self, config, site):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.full((site.dim,), config.gate))
        self.value = torch.nn.Linear(site.dim, site.dim)
        self.cross = site.role == "cross"

    def forward(self, x, *, keep=None, carry=None, context=None, context_keep=None):
        other = (x, keep) if context is None else (context, context_keep)
        return self.prefill(x, memory=self.memory(other[0], keep=other[1]))[0]

    @property
    def caches(self):
        return self.cross  # a mean over x itself would see later tokens

    def memory(self, context, *, keep=None):
        keep = context.new_ones(context.shape[:2]) if keep is None else keep.to(context.dtype)
        sums = (self.value(context) * keep[..., None]).sum(1)
        return sums / keep.sum(1, keepdim=True).clamp(min=1)

    def prefill(self, x, *, keep=None, memory=None):
        return torch.sigmoid(x * self.gate) * memory[:, None], {}

    def step(self, x, cache, *, memory=None):
        return torch.sigmoid(x * self.gate) * memory, {}
