"""What stands around a mixer whose state is a matrix for each head: projections, the norm of each
head, and a gate.

    out = (norm(heads) * silu(x W_g)) W_o

Letters: B batch, H heads, L length, E width of keys, V of values, D model width.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import Cache, TokenMixer
from subquad.plugin import Site
from subquad_plugins.numerics.delta_rule import delta_rule
from subquad_plugins.numerics.features import masked
from subquad_plugins.retnet import GatedHeadsConfig


class Heads(NamedTuple):
    """What `delta_rule` is given."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor | None = None


class GatedHeads(TokenMixer):
    """Heads of a recurrence with a matrix as state, between projections without biases.

    Args:
        config: see `GatedHeadsConfig`.
        site: where it stands; its heads are the recurrence's.
        key_dim: width of a head's keys; None: a head's width.
    """

    norm: nn.RMSNorm
    """Of each head's outputs, (.., V)."""

    def __init__(self, config: GatedHeadsConfig, site: Site, key_dim: int | None = None):
        super().__init__()
        self.num_heads = site.num_heads
        keys = site.num_heads * (key_dim or site.head_dim)
        values = config.expand * keys
        self.query, self.key = (nn.Linear(site.dim, keys, bias=False) for _ in range(2))
        self.value, self.gate = (nn.Linear(site.dim, values, bias=False) for _ in range(2))
        self.out = nn.Linear(values, site.dim, bias=False)

    @abstractmethod
    def heads(self, x: Tensor, keep: Tensor | None, before: Cache) -> tuple[Heads, Cache]:
        """What is mixed of x (B, L, D), and what the next call needs; `before` is that of the
        last call, or None.
        """

    @property
    def caches(self) -> bool:
        return True

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Tensor:
        return self.prefill(x, keep=keep)[0]

    def prefill(self, x: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        return self._run(x, keep, {"heads": None, "state": None})

    def step(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        out, after = self._run(x[:, None], None, cache)
        return out[:, 0], after

    def split(self, x: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, E)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _run(self, x: Tensor, keep: Tensor | None, before: Cache) -> tuple[Tensor, Cache]:
        given, after = self.heads(x, keep, before["heads"])
        if keep is not None:
            still = given.log_decay.masked_fill(~keep[:, None], 0.0)
            given = given._replace(k=masked(given.k, keep), log_decay=still)
        with torch.autocast(x.device.type, enabled=False):
            mixed, state = delta_rule(*given, before["state"])
            weight = self.norm.weight
            if weight is not None:
                weight = weight.to(mixed.dtype)
            mixed = F.rms_norm(mixed.transpose(1, 2), mixed.shape[-1:], weight, self.norm.eps)
        gate = self.gate(x)
        gated: Any = _Gated.apply(mixed.flatten(2).to(gate.dtype), gate)
        return self.out(gated), {"heads": after, "state": state}


class _Gated(torch.autograd.Function):
    """x silu(gate); keeps x and the gate, where torch would keep silu(gate) too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor) -> Tensor:
        ctx.save_for_backward(x, gate)
        return x * F.silu(gate)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gate = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, which `silu_backward` has not
            share = gate.sigmoid()
            slope = share * (1 + gate * (1 - share))
            return grads[0] * gate * share, grads[0] * x * slope
        to_gate = torch.ops.aten.silu_backward(grads[0] * x, gate)
        return F.silu(gate).mul_(grads[0]), to_gate
