"""agent_attention_pytorch.AgentSelfAttention as a mixer."""

from agent_attention_pytorch import AgentSelfAttention

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Agent(TokenMixer):
    Config = MixerConfig
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.inner = AgentSelfAttention(
            site.dim, num_agent_tokens=8, heads=site.num_heads, dim_head=site.head_dim
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x, mask=keep)
