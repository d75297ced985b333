"""A mixer of your own: written, checked, trained beside the control that mixes nothing.

python examples/own_mixer.py
"""

from __future__ import annotations

from pathlib import Path

import torch

import subquad
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param
from subquad_check import check_mixer


class GatedMean(TokenMixer):
    """Adds the gated mean of all real tokens to each token."""

    class Config(MixerConfig):
        gate: float = param(1.0, meaning="initial gate", ge=0.0, le=4.0)

    facts = Facts(padding_invariant=True, complexity="L")

    def __init__(self, config: Config, site: object):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.full((site.dim,), config.gate))

    def forward(self, x, *, keep=None, carry=None):
        """(B, L, D) to (B, L, D); `keep` (B, L) is True for real tokens, None where all are
        real.
        """
        real = torch.ones_like(x[..., :1]) if keep is None else keep.unsqueeze(-1).to(x.dtype)
        mean = (x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
        return x + self.gate * mean


def main() -> None:
    here = f"{__file__}:GatedMean"
    for case in check_mixer(here, only=["shapes", "gradients", "padding-content", "batch-outputs"]):
        case()  # raises CheckFailed, and says why, where the mixer is not what it claims
        print("ok  ", case)
    results = subquad.train(
        Path(__file__).parent / "small.yaml", [f"matrix.mixer=[{here}, identity]"]
    )
    for result in results:
        print(f"{result['label']:<10} test accuracy {result['test']['metrics']['accuracy']:.3f}")


if __name__ == "__main__":
    main()
