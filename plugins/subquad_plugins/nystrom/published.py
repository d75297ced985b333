"""Nystrom attention as it was published, step by step: what its speed is compared with. Not used
else.

The three weight matrices are made, the inverse is iterated with full products, and the values are
convolved by torch's convolution. Same weights and outputs as `core.Nystrom`: the inverse starts
from each matrix's own norm, as in the paper, where the authors' code takes the largest of the
batch, which costs the same.

Letters: B batch, H heads, L length, E head width, r landmarks.
Reference: Xiong et al. 2021, Eq. 7, 11 and Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.nystrom import Config


class PublishedNystrom(AttentionCore):
    """The published core.

    Args:
        config: see `Config`.
        site: where it stands; its length a multiple of the landmarks.

    Raises:
        PluginError: segments of unequal length were not published.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.count = config.num_landmarks
        self.iterations = config.iterations
        width = config.conv_kernel
        if site.max_len % self.count:
            raise PluginError(
                f"nystrom: the published form needs lengths that are multiples of {self.count}"
            )
        self.conv = None
        if width:
            heads = site.num_heads
            self.conv = nn.Conv2d(
                heads, heads, (width, 1), padding=(width // 2, 0), groups=heads, bias=False
            )

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if key_keep is None:
            real = v.new_ones(v.shape[0], v.shape[2])
        else:
            real = key_keep.to(v.dtype)
        scale = v.shape[-1] ** -0.25
        column = real[:, None, :, None]
        q = q * column * scale
        k = k * column * scale
        q_hat, k_hat = (x.unflatten(2, (self.count, -1)).mean(3) for x in (q, k))
        c = torch.softmax(q @ k_hat.mT, -1)
        u = torch.softmax(q_hat @ k_hat.mT, -1)
        padding = 1 - real[:, None, None, :]
        r = torch.softmax(q_hat @ k.mT - 1e9 * padding, -1)
        out = (c @ self._inverse(u)) @ (r @ v)
        if self.conv is None:
            return out
        return out + self.conv(v * column)

    def _inverse(self, u: Tensor) -> Tensor:
        """(B, H, r, r), by the third-order iteration."""
        identity = torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
        largest = u.sum(-2).amax(-1) * u.sum(-1).amax(-1)
        z = u.mT / largest[..., None, None]
        for _ in range(self.iterations):
            uz = u @ z
            inner = 7 * identity - uz
            middle = 15 * identity - uz @ inner
            outer = 13 * identity - uz @ middle
            z = 0.25 * z @ outer
        return z
