"""gated_state_spaces_pytorch.GSS as a mixer."""

from gated_state_spaces_pytorch import GSS

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class GatedStateSpaces(TokenMixer):
    Config = MixerConfig
    facts = Facts(causal="always", leak=1e-12)

    def __init__(self, config, site):
        super().__init__()
        self.inner = GSS(dim=site.dim, dss_kernel_N=32, dss_kernel_H=16)

    def forward(self, x, *, keep=None, carry=None):
        return self.inner(x)
