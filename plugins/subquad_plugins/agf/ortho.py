"""How far the singular vectors are from orthogonal: AGF's regulariser.

Letters: B batch, L length, H heads, E head width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def head_products(left: Tensor, right: Tensor, num_heads: int) -> Tensor:
    """left^T right over the tokens, head by head.

    Args:
        left: (B, L, H * E).
        right: (B, L, H * E).
        num_heads: H.

    Returns:
        (B, H, E, E).
    """
    if num_heads <= 2:
        # One product of all columns wastes half the arithmetic but copies nothing to bring the
        # heads forward.
        blocks = (
            (left.transpose(1, 2) @ right)
            .unflatten(2, (num_heads, -1))
            .unflatten(1, (num_heads, -1))
        )
        return blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1)
    split = (side.unflatten(-1, (num_heads, -1)).transpose(1, 2) for side in (left, right))
    return next(split).transpose(2, 3) @ next(split)


def distance_from_identity(gram: Tensor, norm: str) -> Tensor:
    """Norm of `gram` - I over E^2, mean over heads.

    The paper divides by the number of tokens squared and leaves the norm open (Eq. 11); the
    authors' code takes the sum of magnitudes (`l1`) and divides by E^2. Both norms here divide by
    E^2, so that a weight means the same at any length.

    Args:
        gram: (B, H, E, E).
        norm: "l1" or "frobenius".

    Returns:
        (B,).
    """
    width = gram.shape[-1]
    gap = (gram - torch.eye(width, dtype=gram.dtype, device=gram.device)).flatten(2)
    order = 1 if norm == "l1" else 2
    return torch.linalg.vector_norm(gap, ord=order, dim=-1).mean(-1) / width**2
