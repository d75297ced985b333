"""A mixer that has whatever is seldom, to see what the engine makes of it."""

from pathlib import Path

ODD = """
import torch
from subquad.nn import MixerOutput, TokenMixer
from subquad.plugin import Facts, MixerConfig


class Odd(TokenMixer):
    Config = MixerConfig
    facts = Facts(stateful=True, causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(site.dim)
        self.value = torch.nn.Linear(site.dim, site.dim)
        self.again = torch.nn.Linear(site.dim, site.dim, bias=False)
        self.again.weight = self.value.weight
        self.frozen = torch.nn.Parameter(torch.eye(site.dim), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.zeros(2, 3))
        self.loss_weights = {"size": 0.01}

    def forward(self, x, *, keep=None, carry=None):
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        out = self.value(self.again(x) @ self.frozen).cumsum(1)
        return MixerOutput(out, losses={"size": out.square().mean((1, 2))})
"""
"""A mixer with tied, frozen and unused weights, buffers that differ over ranks, and an extra
loss.
"""


def odd_mixer(folder: Path) -> str:
    """Its name in an experiment."""
    (folder / "odd.py").write_text(ODD)
    return f"{folder / 'odd.py'}:Odd"
