"""CUR attention as the paper states it, a sample and head at a time, padding cut away: the oracle
of the fast path.

Letters: n real tokens, E head width, Ev value width, m picks.
Reference: the paper, Eq. 1 and 3, Algorithm 1, Sec. 7.1; the pseudo-inverse is Eq. 11 of
Nystromformer (Xiong et al. 2021). Ours: masks, `step_full`, `linspace`, `ridge`, `renormalise`, and
random picks that a seed fixes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from subquad_plugins.cur import Config


def cur(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    config: Config,
    *,
    query_keep: Tensor | None = None,
    key_keep: Tensor | None = None,
    force_first: bool = False,
    seed: int = 0,
) -> Tensor:
    """Attention through the rows that `config` selects.

    Args:
        q: (B, H, Lq, E).
        k: (B, H, Lk, E).
        v: (B, H, Lk, Ev).
        config: the core's parameters.
        query_keep: (B, Lq) bool, True = real token.
        key_keep: (B, Lk) bool, True = real token.
        force_first: the first real token is always picked.
        seed: of random picks.

    Returns:
        (B, H, Lq, Ev), 0 at padded queries.
    """
    out = v.new_zeros(*q.shape[:3], v.shape[-1])
    for b in range(q.shape[0]):
        queries = real_places(q.shape[2], None if query_keep is None else query_keep[b])
        keys = real_places(k.shape[2], None if key_keep is None else key_keep[b])
        for h in range(q.shape[1]):
            rows = q[b, h, queries]
            columns = k[b, h, keys]
            values = v[b, h, keys]
            if config.mode == "same":
                q_idx = k_idx = pick(
                    rows, columns, config, config.same_source, force_first, (seed, h)
                )
            else:
                q_idx = pick(rows, columns, config, "q", force_first, (seed, h))
                k_idx = pick(rows, columns, config, "k", force_first, (seed + 1, h))
            out[b, h, queries] = attention(rows, columns, values, q_idx, k_idx, config)
    return out


def real_places(length: int, keep: Tensor | None) -> list[int]:
    """Places of the real tokens."""
    return [i for i in range(length) if keep is None or bool(keep[i])]


def pick(
    q: Tensor, k: Tensor, config: Config, source: str, force_first: bool, key: tuple[int, int]
) -> list[int]:
    """The selected places among n tokens, ascending."""
    n = len(k if source == "k" else q)
    m = config.num_indices
    if config.selection == "linspace":
        return [i * n // min(m, n) for i in range(min(m, n))]
    if config.selection in ("step", "step_full"):
        places = list(range(0, n, max(n // m, 1)))
        if config.selection == "step_full":
            return places
        return places[:m]
    if config.selection == "random":
        scores = [random_score(*key, n, i) for i in range(n)]
    else:
        rows = {"q": [q], "k": [k], "q+k": [q, k]}[source]
        scores = [0.0] * n
        for row in rows:
            for i in range(n):
                scores[i] += score(row[i].detach(), config).item()
    best = sorted(range(n), key=lambda i: (force_first and i > 0, -scores[i], i))
    return sorted(best[:m])


def score(row: Tensor, config: Config) -> Tensor:
    """What one row is ranked by."""
    return {"sum": row.sum(), "abs": row.abs().sum(), "embed": row[config.column]}[config.selection]


def random_score(seed: int, head: int, n: int, place: int) -> int:
    """A hash of four whole numbers."""
    key = scrambled(scrambled(head + scrambled(seed % 2**32)) + n)
    return scrambled(key ^ place)


def scrambled(x: int) -> int:
    """Two rounds of xor-shift and multiplication, modulo 2^32."""
    for _ in range(2):
        x = ((x >> 16) ^ x) * 0x45D9F3B % 2**32
    return (x >> 16) ^ x


def attention(
    q: Tensor, k: Tensor, v: Tensor, q_idx: list[int], k_idx: list[int], config: Config
) -> Tensor:
    """C (U+ (R V)): q (n, E), k (n, E), v (n, Ev) to (n, Ev)."""
    c = weights(q @ k[k_idx].T, q, k, config)
    r = weights(q[q_idx] @ k.T, q, k, config)
    z = inverse(c[q_idx], config)
    out = c @ (z @ (r @ v))
    if config.renormalise:
        out = out / (c @ z.sum(1, keepdim=True))
    if config.copy_rows:
        out = out.index_copy(0, torch.tensor(q_idx, device=q.device), r @ v)
    return out


def weights(products: Tensor, q: Tensor, k: Tensor, config: Config) -> Tensor:
    """Attention weights from inner products."""
    if config.function == "softmax":
        return torch.softmax(products / q.shape[1] ** 0.5, 1)
    return 0.5 * torch.erfc((0.707107 - products / len(k)) / (0.282095 * 2**0.5))


def inverse(u: Tensor, config: Config) -> Tensor:
    """U+, exactly or about."""
    size = u.abs().sum(0).max() * u.abs().sum(1).max()
    if config.pinv == "exact":
        return torch.linalg.pinv(u)
    if config.pinv == "ridge":
        return (
            torch.linalg.inv(u.T @ u + config.ridge * size * torch.eye(u.shape[1], dtype=u.dtype))
            @ u.T
        )
    identity = torch.eye(len(u), dtype=u.dtype)
    z = u.T / (size if config.start_gradient else size.detach())
    for _ in range(config.iterations):
        inner = 7 * identity - u @ z
        middle = 15 * identity - u @ z @ inner
        outer = 13 * identity - u @ z @ middle
        z = z @ outer / 4
    return z
