"""Sequences continued beyond their ends, so that an operator with a boundary becomes a plain
convolution.

A Laplacian with a boundary acts on a sequence as the Laplacian of the whole line acts on the
sequence mirrored at its ends (neumann), mirrored with the other sign around a zero (dirichlet), or
repeated (periodic); likewise its powers. Each sample has its own end: real tokens are moved to the
front first, and padding never takes part.

Letters: B batch, L length, D width, n a sample's number of real tokens.
Reference: Strang 1999, The Discrete Cosine Transform, on boundary conditions and symmetric
extension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from subquad_plugins.numerics import places
from subquad_plugins.numerics.continuation import source

MODES = {
    "neumann": "symmetric",
    "dirichlet": "dirichlet",
    "periodic": "periodic",
    "cyclic": "periodic",
    "shift": "zero",
}
"""How the sequence of an operator goes on, see `continuation.source`."""


def to_front(x: Tensor, keep: Tensor) -> Tensor:
    """Real tokens first, in their order, then zeros; x (B, L, D), keep (B, L) bool.

    Raises:
        ValueError: keep has other sizes.
    """
    if keep.shape != x.shape[:2]:
        raise ValueError(f"keep has the shape {tuple(keep.shape)}, must be {tuple(x.shape[:2])}")
    return places.to_front(x, keep, places.places_of(keep))


def put_back(y: Tensor, keep: Tensor) -> Tensor:
    """The inverse of `to_front`: each token to its place, zeros at padding."""
    rank = (keep.long().cumsum(1) - 1).clamp_min(0)
    return places.take_tokens(y, rank).masked_fill(~keep[..., None], 0.0)


def extend(x: Tensor, before: int, after: int, matrix: str, keep: Tensor | None = None) -> Tensor:
    """Continue each sequence beyond its ends.

    Args:
        x: (B, L, D); with `keep`, as `to_front` returns it.
        before: tokens to add in front.
        after: tokens to add behind.
        matrix: neumann, dirichlet, periodic or cyclic (the same), or shift (zeros).
        keep: (B, L) bool; only the number of real tokens counts. None: all.

    Returns:
        (B, before + L + after, D). What follows position n + `after` of a sample means nothing.
    """
    if matrix == "shift":
        return torch.nn.functional.pad(x, (0, 0, before, after))
    length = x.shape[1]
    if keep is None:
        positions = torch.arange(-before, length + after, device=x.device)
        outside = torch.cat([positions[:before], positions[before + length :]])
        index, sign, *_ = source(MODES[matrix], outside, length)
        edges = x.index_select(1, index)
        if isinstance(sign, Tensor):
            edges = edges * sign[:, None].to(x.dtype)
        return torch.cat([edges[:, :before], x, edges[:, before:]], 1)
    positions = torch.arange(-before, length + after, device=x.device).expand(x.shape[0], -1)
    index, sign, *_ = source(MODES[matrix], positions, keep.sum(1, keepdim=True).clamp_min(1))
    extended = places.take_tokens(x, index)
    if not isinstance(sign, Tensor):
        return extended
    return extended * sign[..., None].to(x.dtype)
