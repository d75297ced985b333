"""Softmax attention: softmax(q k^T / sqrt(E)) v, by torch's kernels or with its weights stored.

torch's fastest kernels take no mask. So where keys are padded, the real ones are packed, and padded
ones cost nothing. Padded queries are answered as before, since a head may average over them. A
causal core takes the mask as it is.

Letters: B batch, H heads, Lq and Lk query and key length, E and Ev head width of keys and values.
Reference: Vaswani et al. 2017, Eq. 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn.kernels import Operation
from subquad.plugin import Site
from subquad_plugins.numerics.key_cache import KeyCacheCore
from subquad_plugins.numerics.launching import FORMATS
from subquad_plugins.softmax import Config

LONG = 512
"""Keys from which on a call for each sample costs less on a CPU than a mask does."""


class Softmax(KeyCacheCore):
    """Scaled dot-product attention.

    Args:
        config: see `Config`.
        site: causal or not; a causal core needs as many queries as keys.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.dropout = config.dropout
        self.stored = config.kernel == "standard"
        self.causal = site.causal
        self.crossing = site.role == "cross"

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if self.causal and q.shape[2] != k.shape[2]:
            raise PluginError(
                "softmax: causal attention needs as many queries as keys, got "
                f"{q.shape[2]} and {k.shape[2]}"
            )
        dropout = self.dropout if self.training else 0.0
        if self.stored:
            return _standard(q, k, v, self._seen(q, key_keep), dropout)
        if key_keep is None:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        if self.causal:
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=_past(key_keep), dropout_p=dropout
            )
        return _ATTENTION(q, k, v, _some(key_keep), dropout)

    def _seen(self, q: Tensor, key_keep: Tensor | None) -> Tensor | None:
        """Which query may see which key, as `_standard` takes it; None: every key."""
        if self.causal:
            ones = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool)
            return _past(ones if key_keep is None else key_keep)
        return None if key_keep is None else _some(key_keep)[:, None, None]

    @property
    def caches(self) -> bool:
        return self.causal or self.crossing


def _some(key_keep: Tensor) -> Tensor:
    """The keys to attend to, (B, Lk): without one the softmax would be NaN, so a sample of
    padding alone sees all of it.
    """
    return key_keep | ~key_keep.any(1, keepdim=True)


def _standard(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, dropout: float) -> Tensor:
    """Equation 1 as it is written, with the weights (B, H, Lq, Lk) as a tensor.

    Forward, scores and weights exist at once: 2 B H Lq Lk numbers. Backward, the weights and
    the gradients of both: 3 B H Lq Lk.

    Args:
        seen: bool, broadcast to (B, H, Lq, Lk); None: every key.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if seen is not None:
        scores = scores.masked_fill_(~seen, -torch.inf)
    return F.dropout(scores.softmax(-1), dropout) @ v


def _past(key_keep: Tensor) -> Tensor:
    """Which query may see which key, (B, 1, L, L); never a row without any, whose softmax would
    be NaN.
    """
    length = key_keep.shape[1]
    past = torch.ones(length, length, dtype=torch.bool, device=key_keep.device).tril()
    # A real token sees itself in any case, so this only gives padded queries something to look at.
    itself = torch.eye(length, dtype=torch.bool, device=key_keep.device)
    return (past & key_keep[:, None] | itself)[:, None]


def _reference(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dropout: float) -> Tensor:
    """keep: (B, Lk) bool, a key at least for every sample."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None], dropout_p=dropout)


_ATTENTION = Operation("softmax.attention", reference=_reference)


def _alike(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dropout: float) -> bool:
    return not torch.compiler.is_compiling() and q.dtype == k.dtype == v.dtype and q.numel() > 0


@_ATTENTION.implementation("packed", devices=("cuda",), dtypes=FORMATS, when=_alike, by_values=True)
def _packed(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dropout: float) -> Tensor:
    """The real keys of all samples behind one another, for torch's kernels of variable length.
    Waits for the device.
    """
    batch = q.shape[0]
    length = q.shape[2]
    places = keep.flatten().nonzero()[:, 0]
    starts = F.pad(keep.sum(1).cumsum(0), (1, 0))
    queries = torch.arange(batch + 1, device=q.device) * length
    rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    rows[1:] = (x.index_select(0, places) for x in rows[1:])
    bounds = ((queries, length, length), *[(starts, 1, keep.shape[1])] * 2)
    packed = (
        torch.nested.nested_tensor_from_jagged(x, at, min_seqlen=least, max_seqlen=most).transpose(
            1, 2
        )
        for x, (at, least, most) in zip(rows, bounds, strict=True)
    )
    out = F.scaled_dot_product_attention(*packed, dropout_p=dropout).transpose(1, 2)
    return out.values().unflatten(0, (batch, length)).transpose(1, 2)


def _pays(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dropout: float) -> bool:
    return _alike(q, k, v, keep, dropout) and k.shape[2] >= LONG and not bool(keep.all())


@_ATTENTION.implementation("by-sample", when=_pays, by_values=True)
def _by_sample(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, dropout: float) -> Tensor:
    """One call for each sample, with its real keys alone."""
    samples = zip(q.split(1), k.split(1), v.split(1), keep, strict=True)
    return torch.cat(
        [
            F.scaled_dot_product_attention(a, b[:, :, n], c[:, :, n], dropout_p=dropout)
            for a, b, c, n in samples
        ]
    )
