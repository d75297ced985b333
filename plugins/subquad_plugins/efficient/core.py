"""Efficient attention: softmax over channels of q, times (softmax over tokens of k)^T v.

Causal: the softmax over tokens is one over those so far, in each channel. Its exponentials are
relative to the first real token, which all see. Keys that are above it by more than half the range
of the format count as just that.

Letters: B batch, H heads, L length, E head width.
Reference: Shen et al. 2021, Eq. 5 with normalisation by softmax. The causal form is ours: the paper
has none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad.nn import Cache
from subquad.plugin import Site
from subquad_plugins.efficient import Config
from subquad_plugins.numerics.features import FeatureCore, causal_product, masked
from subquad_plugins.numerics.tensors import take_rows, wide


class Efficient(FeatureCore):
    """Efficient attention.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(site)

    def query_features(self, q: Tensor) -> Tensor:
        return q.softmax(-1)

    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        # The lowest number, not -inf: a sample without real tokens would be NaN.
        lowest = torch.finfo(k.dtype).min
        return (k if keep is None else k.masked_fill(~keep[:, None, :, None], lowest)).softmax(2)

    def normaliser(self, weight: Tensor) -> Tensor:
        return weight.new_ones(())

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        k = wide(k)
        first, total, sums = cache or (_first(k, keep), 0.0, None)
        most = math.log(torch.finfo(k.dtype).max) / 2
        keys = masked((k - first).clamp_max(most).exp(), keep)
        total = total + keys.cumsum(2)
        queries = q.softmax(-1, dtype=total.dtype) / total.masked_fill(total == 0, 1.0)
        out, sums = causal_product(queries.to(v.dtype), keys.to(v.dtype), v, sums)
        return out, (first, total[:, :, -1:], sums)


def _first(k: Tensor, keep: Tensor | None) -> Tensor:
    """Keys of each sample's first real token, (B, H, 1, E), as constants: the result does not
    depend on them.
    """
    if keep is None:
        return k[:, :, :1].detach()
    return take_rows(k, keep.long().argmax(1)[:, None, None]).detach()
