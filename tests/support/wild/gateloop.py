"""gateloop_transformer's SimpleGateLoopLayer and GateLoopedAttention as mixers."""

from gateloop_transformer import GateLoopedAttention, SimpleGateLoopLayer

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class SimpleGateLoop(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = SimpleGateLoopLayer(site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)


class GateLoop(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.inner = GateLoopedAttention(
            site.dim, heads=site.num_heads, frac_gradient_state_transition=1.0
        )

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
