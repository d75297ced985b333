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
        sink = _flow(sinks, (sources * outgoing).sum(2, True))
        source = masked(
            _flow(sources, (sinks * incoming).sum(2, True)).clamp(-self.clamp, self.clamp).exp(),
            key_keep,
        )
        share = source / source.sum(2, True).clamp_min(_EPS) * counts[1]
        return (
            (sinks * incoming)
            @ (sources.mT @ (v * share))
            * (sink * counts[0] / counts[1]).sigmoid()
        )

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        past: list[Any] = list(cache or [0.0] * 6 + [None])
        after: list[Any] = []

        def so_far(x: Tensor) -> Tensor:
            after.append(past[len(after)] + x.sum(2, True))
            return past[len(after) - 1] + x.cumsum(2)

        sinks = masked(q.sigmoid(), keep)
        sources = masked(k.sigmoid(), keep)
        count = so_far(masked(torch.ones_like(q[..., :1]), keep)).clamp_min(1.0)
        incoming = count / _flow(sinks, so_far(sources))
        outgoing = count / _flow(sources, so_far(sinks))
        sink = _flow(sinks, so_far(sources * outgoing)) / count
        source = _flow(sources, so_far(sinks * incoming)) / count
        source = masked(source.clamp(-self.clamp, self.clamp).exp(), keep)
        share = source / so_far(source).clamp_min(_EPS) * count
        out, sums = causal_product(sinks * incoming / count, sources, v * share, past[6])
        return out * sink.sigmoid(), (*after, sums)


def _flow(x: Tensor, sums: Tensor) -> Tensor:
    return ((x + _EPS) * (sums + _EPS)).sum(-1, keepdim=True)
