"""GFNet: Y = F^-1(W F(X)), F the Fourier transform over an image's height and width, for each
channel by itself.

A sequence is an image one patch high and as wide as the longest sequence, a shorter one filled up
with zeros. So W is a circular convolution as large as the sequence. Tokens in front of the grid
take no part: for them it returns zeros.

Letters: B batch, L length, D channels, h height, w width.
Reference: Rao et al. 2021, GFNet, Eq. 4 to 6. Departure: tokens in front, which the paper's network
has not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Site
from subquad_plugins.gfnet import Config
from subquad_plugins.numerics.tensors import wide


class GFNet(TokenMixer):
    """Global filter.

    Args:
        config: see `Config`.
        site: its grid, or the longest sequence.

    Raises:
        PluginError: there is neither.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        if site.grid is None and not site.max_len:
            raise PluginError(
                "gfnet: neither a grid nor the length of the longest sequence is known"
            )
        self.prefix = site.num_prefix_tokens if site.grid else 0
        self.grid = site.grid or (1, site.max_len)
        height, width = self.grid
        self.weight = nn.Parameter(torch.randn(height, width // 2 + 1, site.dim, 2) * config.scale)

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        patches = x[:, self.prefix :]
        missing = self.grid[0] * self.grid[1] - patches.shape[1]
        if missing < 0:
            raise PluginError(
                f"gfnet: got {x.shape[1]} positions, and it was built for {x.shape[1] + missing}"
            )
        with torch.autocast(x.device.type, enabled=False):
            patches = wide(patches)
            if keep is not None:
                patches = patches.masked_fill(~keep[:, self.prefix :, None], 0.0)
            image = F.pad(patches, (0, 0, 0, missing)).unflatten(1, self.grid)
            spectrum = torch.fft.rfft2(image, dim=(1, 2), norm="ortho") * torch.view_as_complex(
                wide(self.weight)
            )
            mixed = torch.fft.irfft2(spectrum, s=self.grid, dim=(1, 2), norm="ortho").flatten(1, 2)
        mixed = mixed[:, : x.shape[1] - self.prefix]
        return F.pad(mixed, (0, 0, self.prefix, 0)).to(x.dtype)
