"""Attention functions of Mega, and which keys a query sees.

softmax: softmax(q k^T / sqrt(z) + B)
laplace: Phi((q k^T / count + B - mu) / sigma), Phi the normal distribution

Letters: G groups (batch times chunks in any arrangement), Q queries, K keys, z attention width, v
value width.
Reference: Ma et al. 2023, Mega, Eq. 8 and 16 (Laplace: mu = sqrt(1/2), sigma = sqrt(1 / (4 pi))).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from subquad_plugins.numerics.tensors import laplace, wide

Form = Literal["softmax", "laplace"]


def visible_keys(
    keep: Tensor | None, length: int, *, causal: bool, device: torch.device
) -> Tensor | None:
    """Which key each query may see.

    Args:
        keep: (..., K) bool, True = real token; None when all are.
        length: K.
        causal: whether a query sees itself and earlier keys only.
        device: where the result shall be.

    Returns:
        bool that broadcasts to (..., Q, K), or None for all.
    """
    if keep is None:
        visible = None
    else:
        visible = keep[..., None, :]
    if not causal:
        return visible
    past = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    if visible is None:
        return past
    return visible & past


def scaled_queries(q: Tensor, visible: Tensor | None, keys: int, form: Form) -> Tensor:
    """q / sqrt(z), or q over the number of keys it sees (laplace), (..., Q, z).

    In a causal mixer each row has its own count, as in the authors' code.
    """
    if form == "softmax":
        return q * q.shape[-1] ** -0.5
    if visible is None:
        return q / keys
    return q / visible.sum(-1, keepdim=True).clamp_min(1)


def attention_weights(scores: Tensor, visible: Tensor | None, form: Form) -> Tensor:
    """Softmax or Laplace of scores that hold the bias already; zero where a key is not visible.

    Args:
        scores: (..., Q, K), fp32 at least.
        visible: bool that broadcasts to it, or None.

    Returns:
        (..., Q, K). A softmax row that sees nothing (all padding) takes all keys alike, so that it
        stays finite.
    """
    if form == "laplace":
        weights = laplace(scores)
        if visible is None:
            return weights
        return weights.masked_fill(~visible, 0.0)
    if visible is None:
        return torch.softmax(scores, -1)
    hidden = ~visible & visible.any(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)


def mega_weights(
    q: Tensor,
    k: Tensor,
    bias: Tensor,
    form: Form,
    *,
    keep: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Mega's attention matrix, f(scale q k^T + B).

    Args:
        q: (..., L, z).
        k: (..., L, z).
        bias: B, (L, L) or what broadcasts to the scores.
        form: f and its scale.
        keep: (..., L) bool, True = real token; such keys alone get weight, and are counted by
            laplace.
        causal: whether a query sees itself and earlier keys only.

    Returns:
        (..., L, L), fp32 at least.
    """
    visible = visible_keys(keep, k.shape[-2], causal=causal, device=k.device)
    scores = similarity(scaled_queries(q, visible, k.shape[-2], form), k, bias)
    return attention_weights(scores, visible, form)


def similarity(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """q k^T + bias, (..., Q, K), fp32 at least; the product itself in the dtype of q and k."""
    return wide(q @ k.transpose(-1, -2)) + bias
