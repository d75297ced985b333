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
        memory = self.memory(x, keep=keep) if context is None else self.memory(context, keep=context_keep)
        return self.prefill(x, memory=memory)[0]

    @property
    def caches(self):
        return self.cross  # a mean over x itself would see later tokens

    def memory(self, context, *, keep=None):
        weight = torch.ones_like(context[..., :1]) if keep is None else keep.unsqueeze(-1).to(context.dtype)
        return (self.value(context) * weight).sum(1) / weight.sum(1).clamp(min=1)

    def prefill(self, x, *, keep=None, memory=None):
        return torch.sigmoid(x * self.gate) * memory[:, None], {}

    def step(self, x, cache, *, memory=None):
        return torch.sigmoid(x * self.gate) * memory, {}
