"""Attention by features of queries and keys: out_i = f(q_i) S / f(q_i) z with S = sum_j f(k_j)
v_j^T, z = sum_j f(k_j).

Nothing of size L x L exists. Causal sums are taken by chunks: within a chunk by its own scores,
before it by S and z. Factors of products stay in bf16 where they come so; sums over chunks are in
fp32 at least. v carries a column of ones, so that S has z as its last column.

Letters: B batch, H heads, L length, E head width, F features, N chunks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import AttentionCore, Cache
from subquad.nn.kernels import Operation
from subquad.plugin import Site
from subquad_plugins.numerics import fla
from subquad_plugins.numerics.tensors import operand, wide

_CHUNK = 64


def causal_product(
    queries: Tensor, keys: Tensor, v: Tensor, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Row i is f(q_i) . sum over j <= i of f(k_j) v_j^T, in time and memory that grow with L.

    Args:
        queries: f(q), (B, H, L, F).
        keys: f(k), (B, H, L, F), 0 at padding.
        v: (B, H, L, E).
        before: what the second result was for the tokens before these, (B, H, F, E); None: there
            are none.

    Returns:
        (B, H, L, E), and the sum over all tokens, (B, H, F, E), of at least fp32.
    """
    return _CAUSAL(queries, keys, v, before)


def _by_chunks(
    queries: Tensor, keys: Tensor, v: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    length = v.shape[2]
    chunk = min(_CHUNK, length)
    queries, keys, v = (
        F.pad(tensor, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk))
        for tensor in (queries, keys, v)
    )
    sums = wide(keys.mT @ v)
    if before is None:
        first = torch.zeros_like(sums[:, :, 0])
    else:
        first = before
    sums = torch.cat([first[:, :, None], sums], 2).cumsum(2)
    within = (queries @ keys.mT).tril() @ v
    out = within + queries @ sums[:, :, :-1].to(v.dtype)
    return out.flatten(2, 3)[:, :, :length], sums[:, :, -1]


_CAUSAL = Operation("causal_product", reference=_by_chunks)
fla.offered(_CAUSAL, fla.recurrence, fla.multiplies)


def masked(x: Tensor, keep: Tensor | None) -> Tensor:
    """0 at padding: x (B, H, L, F), keep (B, L) bool or None."""
    if keep is None:
        return x
    return x.masked_fill(~keep[:, None, :, None], 0.0)


def with_ones(v: Tensor) -> Tensor:
    """(B, H, L, E) to (B, H, L, E + 1)."""
    return F.pad(v, (0, 1), value=1.0)


def quotient(sums: Tensor, normaliser: Callable[[Tensor], Tensor]) -> Tensor:
    """Sums of values (B, H, L, E) by what comes of those of weights, the last column of (B, H,
    L, E + 1).
    """
    return sums[..., :-1] / normaliser(sums[..., -1:])


class RunningCore(AttentionCore):
    """Attention that goes on from token to token with a state of fixed size, where it is causal.

    Args:
        site: causal or not; a causal core needs as many queries as keys.
    """

    def __init__(self, site: Site):
        super().__init__()
        self.causal = site.causal
        self.crossing = site.role == "cross"

    @abstractmethod
    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, query_keep: Tensor | None, key_keep: Tensor | None
    ) -> Tensor:
        """Every query sees every key; as `AttentionCore.forward`, of bf16 or more."""

    @abstractmethod
    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        """Causal: outputs, and the state after all tokens, of at least fp32; `cache` is the state
        before them, None for none.
        """

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if not self.causal:
            with torch.autocast(q.device.type, enabled=False):
                mixed = self.mix(operand(q), operand(k), operand(v), query_keep, key_keep)
                return mixed.to(q.dtype)
        if q.shape[2] != k.shape[2]:
            name = type(self).__name__.lower()
            raise PluginError(
                f"{name}: causal attention needs as many queries as keys, got "
                f"{q.shape[2]} and {k.shape[2]}"
            )
        return self.prefill(q, k, v, keep=key_keep)[0]

    @property
    def caches(self) -> bool:
        return self.causal

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        return self._run(q, k, v, keep, None)

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        out, after = self._run(q[:, :, None], k[:, :, None], v[:, :, None], None, cache)
        return out[:, :, 0], after

    def _run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        with torch.autocast(q.device.type, enabled=False):
            out, after = self.run(operand(q), operand(k), operand(v), keep, cache)
        return out.to(q.dtype), after


class FeatureCore(RunningCore):
    """Features of queries and keys, and the quotient of their sums."""

    @abstractmethod
    def query_features(self, q: Tensor) -> Tensor:
        """f(q), (B, H, L, E) to (B, H, L, F)."""

    @abstractmethod
    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        """f(k), (B, H, L, E) to (B, H, L, F); anything at padding."""

    def normaliser(self, weight: Tensor) -> Tensor:
        """What sums are divided by, of f(q) z; 1 where no key is seen."""
        return weight.masked_fill(weight == 0, 1.0)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, query_keep: Tensor | None, key_keep: Tensor | None
    ) -> Tensor:
        return self.read(q, self.memory(k, v, keep=key_keep), keep=query_keep)

    @property
    def caches(self) -> bool:
        return self.causal or self.crossing

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        with torch.autocast(k.device.type, enabled=False):
            # This way round the gradient of the features comes as they lie in memory.
            features = masked(self.key_features(operand(k), keep), keep)
            return (with_ones(operand(v)).mT @ features).mT

    def read(self, q: Tensor, memory: Cache, *, keep: Tensor | None = None) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            return quotient(self.query_features(operand(q)) @ memory, self.normaliser).to(q.dtype)

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        keys = masked(self.key_features(k, keep), keep)
        out, after = causal_product(self.query_features(q), keys, with_ones(v), cache)
        return quotient(out, self.normaliser), after
