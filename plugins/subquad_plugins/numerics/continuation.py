"""How a finite sequence goes on before its first and after its last token: PyWavelets' nine modes,
and two more.

Every mode takes each token outside from tokens inside: x~_p = scale x_i + first x_0 + last x_{n-1},
where i, scale, first and last depend on the position p, the length n and the mode only. A Laplacian
with a boundary acts on a sequence as that of the whole line acts on the continued one: neumann is
`symmetric`, dirichlet has a mode of its own.

Letters: n length of a sequence, p position (below 0: before the sequence).
Reference: PyWavelets, "Signal extension modes"; Strang 1999, The Discrete Cosine Transform, on
boundary conditions and symmetric extension.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Source(NamedTuple):
    """x~_p = scale x_index + first x_0 + last x_{n-1}."""

    index: Any
    scale: Any
    first: Any = 0
    last: Any = 0


def source(mode, p, n):
    """Where the token at position p of a continued sequence of n >= 1 tokens comes from.

    In words that Triton compiles too, whose remainder has the sign of what is divided.

    Args:
        mode: one of PyWavelets' names; `dirichlet`: mirrored with the other sign around a zero;
            `even`: periodic, with a zero behind the last token where n is odd.
        p: any whole number down to -4096, or a tensor of them.
        n: length, or a tensor of lengths that broadcasts with p.
    """
    before = p < 0
    after = p >= n
    inside = 1 - 1 * before - 1 * after
    period = n
    if mode == "periodization" or mode == "even":
        period = n + n % 2
    elif mode == "symmetric" or mode == "antisymmetric":
        period = 2 * n
    elif mode == "reflect" or mode == "antireflect":
        period = 2 * n - 2 + (n == 1) * 1
    elif mode == "dirichlet":
        period = 2 * n + 2
    turn = (p + 4096 * period) % period
    back = 1 * (turn >= n)
    index = turn
    scale = 1
    first = 0
    last = 0
    if mode == "zero":
        index = p * inside
        scale = inside
    elif mode == "constant":
        index = p * inside + after * (n - 1)
    elif mode == "smooth":  # straight on through the two outermost tokens
        index = p * inside + before * (n > 1) * 1 + after * (n - 2 + (n == 1) * 1)
        far = after * (p - n + 1) - before * p
        scale = inside - far
        first = before * (1 + far)
        last = after * (1 + far)
    elif mode == "periodization":  # periodic, with the last token twice where n is odd
        index = turn - back
    elif mode == "even":
        index = turn - back
        scale = 1 - back
    elif mode == "dirichlet":
        scale = (1 - 2 * back) * (turn != n) * (turn != 2 * n + 1)
        index = (turn + back * (2 * n - 2 * turn)) * (scale != 0)
    elif mode == "symmetric" or mode == "antisymmetric":
        index = turn + back * (2 * n - 1 - 2 * turn)
    elif mode == "reflect" or mode == "antireflect":
        index = turn + back * (period - 2 * turn)
    if mode == "antisymmetric" or mode == "antireflect":
        scale = 1 - 2 * back
    if mode == "antireflect":  # turned about the outermost token
        lap = (p + 4096 * period) // period - 4096
        first = -2 * lap
        last = 2 * lap + 2 * back
    return Source(index, scale, first, last)
