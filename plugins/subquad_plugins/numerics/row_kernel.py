"""Neighbouring tokens of a continued sequence, in Triton: each a row of channels of its own, so
that a thread has them side by side and a filter reads each once.
"""

from __future__ import annotations

from types import FunctionType

import triton
import triton.language as tl

from subquad_plugins.numerics import continuation
from subquad_plugins.numerics.continuation import Source  # noqa: F401  (`source` makes one)

# The same words, in a module that knows Triton's language.
source = triton.jit(FunctionType(continuation.source.__code__, globals()))


@triton.jit
def _loaded(x, start, n, x_token, exists, MODE: tl.constexpr, ROWS: tl.constexpr):
    rows = ()
    for i in tl.static_range(ROWS):
        p = tl.cast(start + i, tl.int64)
        if MODE == "inside":
            row = tl.load(x + p * x_token, mask=exists, other=0.0)
        else:
            index, scale, first, last = source(MODE, p, n)
            row = tl.load(x + index * x_token, mask=exists, other=0.0).to(tl.float32) * scale
            if MODE == "smooth" or MODE == "antireflect":
                row += tl.load(x, mask=exists, other=0.0).to(tl.float32) * first
                end = tl.load(x + (n - 1) * x_token, mask=exists, other=0.0)
                row += end.to(tl.float32) * last
        rows += (row.to(x.dtype.element_ty),)
    return rows


@triton.jit
def rows_of(x, start, n, x_token, exists, MODE: tl.constexpr, ROWS: tl.constexpr):
    """ROWS tokens, (C,) fp32 each. Most programs ask for none beyond the ends, and need no mode.

    Args:
        x: pointers (C,) to the first token.
        start: position of the first row.
        n: length.
        x_token: stride.
        exists: (C,) which channels there are.
        MODE: of `continuation.source`.
    """
    if (start >= 0) & (start + ROWS <= n):
        rows = _loaded(x, start, n, x_token, exists, "inside", ROWS)
    else:
        rows = _loaded(x, start, n, x_token, exists, MODE, ROWS)
    wide = ()
    for i in tl.static_range(ROWS):
        wide += (rows[i].to(tl.float32),)
    return wide
