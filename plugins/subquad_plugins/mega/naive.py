"""Mega as the paper states it: moving averages as recursions, one token after another, attention
chunk by chunk.

The oracle that the fast path is tested against; also the dense attention that MegaCUR approximates.

Letters: B batch, L length, D model width, N EMA width, z attention width, v value width.
Reference: Ma et al. 2023, Mega, Eq. 2-16; constants and scales as in the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.mega import LayerConfig

Weights = Mapping[str, Tensor]


def mega(
    x: Tensor,
    weights: Weights,
    config: LayerConfig,
    *,
    causal: bool = False,
    keep: Tensor | None = None,
) -> Tensor:
    """What the mixer returns; the authors' layer is x plus this. Rows of padding are meaningless.

    Args:
        x: (B, L, D).
        weights: the mixer's state.
        config: the mixer's parameters.
        causal: whether no token sees a later one.
        keep: (B, L) bool, True = real token.

    Returns:
        (B, L, D).
    """
    out = torch.zeros_like(x)
    for sample in range(len(x)):
        if keep is None:
            real = slice(None)
        else:
            real = keep[sample].nonzero()[:, 0]
        if len(x[sample, real]):
            out[sample, real] = _one(x[sample, real], weights, config, causal)
    return out


def _one(x: Tensor, weights: Weights, config: LayerConfig, causal: bool) -> Tensor:
    """One sample without padding, (L, D)."""

    def project(name: str, y: Tensor) -> Tensor:
        return y @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    normed = _norm(x, weights, config)
    value = F.silu(project("value", normed))
    averaged = F.silu(ema(normed, weights, config.truncation) + weights["ema.skip"] * normed)
    z_dim = weights["scale"].shape[1]
    v_dim = value.shape[1]
    update, z, reset, hidden = project("branches", averaged).split(
        (x.shape[1], z_dim, v_dim, x.shape[1]), -1
    )
    q = F.silu(z) * weights["scale"][0] + weights["shift"][0]
    k = F.silu(z) * weights["scale"][1] + weights["shift"][1]
    size = config.chunk_size or len(x)
    parts = zip(q.split(size), k.split(size), value.split(size), strict=True)
    attended = torch.cat([_weights(q, k, weights, config, causal) @ value for q, k, value in parts])
    proposed = F.silu(hidden + project("out", attended * F.silu(reset)))
    return torch.sigmoid(update) * (proposed - x)


def ema(x: Tensor, weights: Weights, truncation: int = 0) -> Tensor:
    """The moving average of (L, D) by its recursion, and the one from the future where there are
    weights for it.
    """
    names = ("weight_logit", "damping_logit", "expansion", "projection")
    past = {name: weights[f"ema.{name}"][: x.shape[1]] for name in names}
    future = {name: weights[f"ema.{name}"][x.shape[1] :] for name in names}
    averaged = _recursion(x, truncation, **past)
    if len(future["expansion"]):
        return averaged + _recursion(x.flip(0), truncation, **future).flip(0)
    return averaged


def _recursion(
    x: Tensor,
    truncation: int,
    weight_logit: Tensor,
    damping_logit: Tensor,
    expansion: Tensor,
    projection: Tensor,
) -> Tensor:
    p = torch.sigmoid(weight_logit)
    q = 1 - p * torch.sigmoid(damping_logit)
    state = torch.zeros_like(p)
    outputs = []
    for t in range(len(x)):
        state = q * state + p * expansion * x[t, :, None]
        if truncation and t >= truncation:
            state = state - q**truncation * p * expansion * x[t - truncation, :, None]
        outputs.append((projection * state).sum(-1) / math.sqrt(p.shape[1]))
    return torch.stack(outputs)


def _weights(q: Tensor, k: Tensor, weights: Weights, config: LayerConfig, causal: bool) -> Tensor:
    """The attention matrix of one chunk, (c, c)."""
    length = len(q)
    if causal:
        past = torch.ones(length, length, dtype=torch.bool).tril()
    else:
        past = torch.ones(length, length).bool()
    scores = q @ k.T
    if config.attention == "softmax":
        scores = scores / math.sqrt(q.shape[1]) + bias_matrix(weights, length)
        return torch.softmax(scores.masked_fill(~past, -torch.inf), -1)
    scores = scores / past.sum(-1, keepdim=True) + bias_matrix(weights, length)
    return past * 0.5 * torch.erfc((0.707107 - scores) / (0.282095 * math.sqrt(2)))


def bias_matrix(weights: Weights, length: int) -> Tensor:
    """B, (L, L), entry by entry: b(j - i), or the product of the two rotated vectors."""
    if "bias.table" in weights:
        table = weights["bias.table"]
        middle = (len(table) - 1) // 2
        rows = []
        for i in range(length):
            entries = [table[middle + j - i] for j in range(length)]
            rows.append(torch.stack(entries))
        return torch.stack(rows)
    queries = torch.stack([_rotated(weights["bias.query"], place) for place in range(length)])
    keys = torch.stack([_rotated(weights["bias.key"], place) for place in range(length)])
    return queries @ keys.T


def _rotated(vector: Tensor, place: int) -> Tensor:
    left, right = vector.chunk(2)
    angles = place * 10000.0 ** (-torch.arange(len(left), dtype=vector.dtype) / len(left))
    cos = angles.cos()
    sin = angles.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin])


def _norm(x: Tensor, weights: Weights, config: LayerConfig) -> Tensor:
    if config.norm == "none":
        return x
    if config.norm == "layer":
        return F.layer_norm(x, x.shape[-1:], weights["norm.weight"], weights["norm.bias"])
    scaled = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return scaled * weights["norm.scale" if config.norm == "scale" else "norm.weight"]
