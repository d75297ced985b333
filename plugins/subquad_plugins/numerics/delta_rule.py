"""Linear attention that forgets, and that replaces what it knew of a key: a matrix S of a fixed
size for each head.

    S_t = a_t (S_{t-1} - b_t k_t (k_t^T S_{t-1})) + b_t k_t v_t^T      a: decay, b: beta
    out_t = S_t^T q_t

Without b it is S_t = a_t S_{t-1} + k_t v_t^T, as in retention. By chunks: with g_t the sum of log a
from the chunk's start, S before the chunk, and rows u_t = b_t (v_t - e^{g_t} S^T k_t - sum_{j<t}
e^{g_t - g_j} (k_t . k_j) u_j), which is a triangular system,

    S_t = e^{g_t} S + sum_{j <= t} e^{g_t - g_j} k_j u_j^T.

Its inverse is computed for all chunks together; only S passes from chunk to chunk. No exponent is
above 0. q, k and v may be bf16: so are then the factors of products; exponents, the inverse and S
are of the decay's format.

Letters: B batch, H heads, L length, E width of keys, V of values, N chunks, T tokens of a chunk.
Reference: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks, Eq. 10 and Section 3.3; Yang et
al. 2024, Parallelizing Linear Transformers with the Delta Rule.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.numerics import fla

_CHUNK = 64

State = Tensor
"""S, (B, H, E, V)."""


def naive_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor | None = None,
    before: State | None = None,
) -> tuple[Tensor, State]:
    """The recurrence, one token after another; as `delta_rule`."""
    if before is None:
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    else:
        state = before
    rows = []
    for t in range(q.shape[2]):
        key = k[:, :, t, :, None]
        value = v[:, :, t, None]
        state = state * log_decay[:, :, t, None, None].exp()
        if beta is not None:
            value = (value - key.mT @ state) * beta[:, :, t, None, None]
        state = state + key * value
        rows.append((state * q[:, :, t, :, None]).sum(-2))
    return torch.stack(rows, 2), state


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor | None = None,
    before: State | None = None,
) -> tuple[Tensor, State]:
    """The recurrence, chunk by chunk or by another implementation.

    Args:
        q: (B, H, L, E).
        k: (B, H, L, E), 0 at padding.
        v: (B, H, L, V).
        log_decay: log a <= 0, (B, H, L), of at least fp32, 0 at padding.
        beta: b, (B, H, L); None: nothing is replaced.
        before: S before the first token; zeros where None.

    Returns:
        (B, H, L, V), and S after the last token.
    """
    return _RULE(q, k, v, before, log_decay, beta)


def _by_chunks(
    q: Tensor, k: Tensor, v: Tensor, before: State | None, log_decay: Tensor, beta: Tensor | None
) -> tuple[Tensor, State]:
    batch, heads, length = q.shape[:3]
    size = min(_CHUNK, q.shape[2])
    q, k, v, total = (_chunked(x, size) for x in (q, k, v, log_decay[..., None]))
    total = total.cumsum(1)
    later = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    decay = (total - total.mT).masked_fill(later, -torch.inf).exp()
    known = torch.zeros_like(k)
    if beta is not None:
        beta = _chunked(beta[..., None], size)
        system = (beta * (k @ k.mT) * decay).tril(-1)
        identity = torch.eye(size, dtype=system.dtype, device=q.device).expand_as(system)
        inverse = torch.linalg.solve_triangular(system, identity, upper=False, unitriangular=True)
        v = (inverse * beta.mT).to(v.dtype) @ v
        known = (inverse * (beta * total.exp()).mT).to(k.dtype) @ k
    last = total[:, -1:]
    factors = (decay, total.exp(), (last - total).exp())
    within, entering, leaving = (factor.to(q.dtype) for factor in factors)
    given = (v, known, (q @ k.mT) * within, q * entering, k * leaving, last.exp())
    chunks = zip(*(x.unflatten(0, (batch * heads, -1)).unbind(1) for x in given), strict=True)
    if before is None:
        state = total.new_zeros(batch * heads, k.shape[-1], v.shape[-1])
    else:
        state = before.flatten(0, 1)
    rows = []
    for value, old, scores, entering, leaving, faded in chunks:
        earlier = state.to(q.dtype)
        if beta is None:
            new = value
        else:
            new = value - old @ earlier
        rows.append(scores @ new + entering @ earlier)
        state = faded * state + leaving.mT @ new
    out = torch.cat(rows, 1)[:, :length]
    return out.unflatten(0, (batch, heads)), state.unflatten(0, (batch, heads))


_RULE = Operation("delta_rule", reference=_by_chunks)
fla.offered(_RULE, fla.recurrence, fla.multiplies)


def _chunked(x: Tensor, size: int) -> Tensor:
    """(B, H, L, E) to (B H N, T, E), zeros at the end."""
    padded = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return padded.unflatten(2, (-1, size)).flatten(0, 2)
