"""SOFT: out = C (U + ridge I)^-1 C^T V, with C = exp(-|Q - Qh|^2 / 2), U the same of the landmarks
Qh, and K = Q.

Letters: B batch, H heads, L length, E head width, r landmarks, S tokens of a landmark.
Reference: Lu et al. 2021, SOFT, Eq. 5 to 11. Departures: landmarks come from a strided convolution
along the sequence, not of an image; the system of U is solved, where the authors' code takes 20
steps of Newton's iteration, which do not reach the inverse if landmarks are close; gradients are
those of the solution, where that code has a formula.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.places import places_of
from subquad_plugins.numerics.tensors import head_convolution, take_rows, wide
from subquad_plugins.soft import Config


class SOFT(TokenMixer):
    """Softmax-free attention.

    Args:
        config: see `Config`.
        site: its longest sequence says how many tokens share a landmark.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        if not site.max_len:
            raise PluginError("soft: the length of the longest sequence is not known")
        self.config = config
        self.num_heads = site.num_heads
        self.max_len = site.max_len
        self.stride = -(-site.max_len // config.num_landmarks)
        self.query, self.value, self.out = (nn.Linear(site.dim, site.dim) for _ in range(3))
        self.pack = nn.Linear(self.stride * site.head_dim, site.head_dim, bias=False)
        self.norm = nn.LayerNorm(site.head_dim)
        width = config.conv_kernel
        if width:
            self.conv = nn.Parameter(
                torch.empty(site.num_heads, width).uniform_(-1, 1) * width**-0.5
            )
        else:
            self.conv = None

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        if x.shape[1] > self.max_len:
            raise PluginError(
                f"soft: got {x.shape[1]} positions, and it was built for {self.max_len}"
            )
        q, v = (
            y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for y in (self.query(x), self.value(x))
        )
        q = q * q.shape[-1] ** -0.25
        if keep is not None:
            v = v.masked_fill(~keep[:, None, :, None], 0)
        landmarks, there = self._landmarks(q, keep)
        mixed = gaussian_attention(q, landmarks, v, ridge=self.config.ridge, there=there)
        if self.conv is not None:
            mixed = mixed + head_convolution(v, self.conv)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _landmarks(self, q: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(B, H, r, E), each of the next S real tokens, and which of them have one, (B, 1, 1,
        r).
        """
        there = None
        rest = -q.shape[2] % self.stride
        if keep is not None:
            q = q.masked_fill(~keep[:, None, :, None], 0)
            q = take_rows(q, places_of(keep).order[:, None])
            first = torch.arange(0, q.shape[2], self.stride, device=q.device)
            there = (first < keep.sum(1, keepdim=True))[:, None, None]
        parts = F.pad(q, (0, 0, 0, rest)).unflatten(2, (-1, self.stride)).flatten(3)
        return F.gelu(self.norm(self.pack(parts))), there


def gaussian_attention(
    q: Tensor,
    landmarks: Tensor,
    v: Tensor,
    *,
    ridge: float,
    there: Tensor | None = None,
) -> Tensor:
    """Attention by a Gaussian of distances, through landmarks, in fp32 at least; the system of U in
    fp64.

    Args:
        q: (B, H, L, E), queries and keys alike.
        landmarks: (B, H, r, E).
        v: (B, H, L, Ev), zeros at padding.
        ridge: added to the diagonal of U.
        there: (B, 1, 1, r) bool, which landmarks count.

    Returns:
        (B, H, L, Ev), dtype of v.
    """
    with torch.autocast(q.device.type, enabled=False):
        sides = _gaussian(q, landmarks)
        middle = _gaussian(landmarks.double(), landmarks.double())
        if there is not None:
            sides = sides * there
            middle = middle * there * there.mT
        identity = torch.eye(middle.shape[-1], dtype=middle.dtype, device=middle.device)
        packed = sides.mT @ v.to(sides.dtype)
        solved = torch.linalg.solve(middle + ridge * identity, packed.double())
        return (sides @ solved.to(sides.dtype)).to(v.dtype)


def _gaussian(a: Tensor, b: Tensor) -> Tensor:
    a = wide(a)
    b = wide(b)
    a_lengths = (a * a).sum(-1, keepdim=True)
    b_lengths = (b * b).sum(-1)[..., None, :]
    lengths = a_lengths + b_lengths
    return torch.exp(a @ b.mT - lengths / 2)
