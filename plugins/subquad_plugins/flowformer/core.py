"""Flow-Attention: sigmoid features, whose flow into queries (sinks) and out of keys (sources) is
conserved.

Letters: B batch, H heads, L length, E head width; N sinks and S sources of a sample, without
padding.
Reference: Wu et al. 2022, Eq. 4 to 8; the causal form and the 1e-6 are those of the authors' code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subquad.nn import Cache
from subquad.plugin import Site
from subquad_plugins.flowformer import Config
from subquad_plugins.numerics.features import RunningCore, causal_product, masked
from subquad_plugins.numerics.tensors import wide_type

_EPS = 1e-6


class Flowformer(RunningCore):
    """Flow-Attention.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(site)
        self.clamp = config.clamp

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, query_keep: Tensor | None, key_keep: Tensor | None
    ) -> Tensor:
        sinks = masked(q.sigmoid(), query_keep)
        sources = masked(k.sigmoid(), key_keep)
        counts = [
            x.shape[2] if keep is None else keep.sum(1)[:, None, None, None].clamp_min(1)
            for x, keep in ((q, query_keep), (k, key_keep))
        ]
        incoming = 1 / _flow(sinks, sources.sum(2, True))
        outgoing = 1 / _flow(sources, sinks.sum(2, True))
        flowing = _scaled(sinks, incoming)
        sink = _flow(sinks, _scaled(sources, outgoing).sum(2, True))
        source = _flow(sources, flowing.sum(2, True))
        source = masked(source.clamp(-self.clamp, self.clamp).exp(), key_keep)
        share = source / source.sum(2, True).clamp_min(_EPS) * counts[1]
        mixed = flowing @ (sources.mT @ _scaled(v, share))
        return _scaled(mixed, (sink * counts[0] / counts[1]).sigmoid())

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        past: list[Any] = list(cache or [0.0] * 6 + [None])
        after: list[Any] = []

        def so_far(x: Tensor) -> Tensor:
            after.append(past[len(after)] + x.sum(2, True, dtype=wide_type(x)))
            return past[len(after) - 1] + x.cumsum(2, dtype=wide_type(x))

        sinks = masked(q.sigmoid(), keep)
        sources = masked(k.sigmoid(), keep)
        count = so_far(masked(torch.ones_like(q[..., :1]), keep)).clamp_min(1.0)
        incoming = count / _flow(sinks, so_far(sources))
        outgoing = count / _flow(sources, so_far(sinks))
        sink = _flow(sinks, so_far(_scaled(sources, outgoing))) / count
        source = _flow(sources, so_far(_scaled(sinks, incoming))) / count
        source = masked(source.clamp(-self.clamp, self.clamp).exp(), keep)
        share = source / so_far(source).clamp_min(_EPS) * count
        out, sums = causal_product(
            _scaled(sinks, incoming / count), sources, _scaled(v, share), past[6]
        )
        return _scaled(out, sink.sigmoid()), (*after, sums)


def _flow(x: Tensor, sums: Tensor) -> Tensor:
    """(B, H, L, 1), of at least fp32."""
    products = (x + _EPS) * (sums.to(x.dtype) + _EPS)
    return products.sum(-1, True, dtype=wide_type(x))


def _scaled(x: Tensor, share: Tensor) -> Tensor:
    """In x's number format."""
    return x * share.to(x.dtype)
