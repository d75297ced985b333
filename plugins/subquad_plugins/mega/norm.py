"""The norms that a Mega layer may hold itself. Batch norm is not among them: it would couple
samples.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from subquad_plugins.numerics.tensors import wide


class ScaleNorm(nn.Module):
    """g x / rms(x), with one learned number g.

    Args:
        dim: D; not used, there for the same call as other norms.

    Reference: Nguyen and Salazar 2019, Transformers without Tears; root mean square and 1e-6 as in
    Mega's code.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        rms = torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + 1e-6)
        return (x * rms * self.scale).to(x.dtype)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda dim: nn.Identity(),
    "layer": nn.LayerNorm,
    "scale": ScaleNorm,
    "rms": lambda dim: nn.RMSNorm(dim, eps=1e-6),
}
"""By their name in `Config`."""
