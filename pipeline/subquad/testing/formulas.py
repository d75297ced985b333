"""Floating-point operations of one torch operation, from its arguments and its result.

Conventions, as in the literature: a multiply-add is 2; a complex FFT of length n is 5 n log2 n, a real one half of it;
a sort is n log2 n comparisons; an elementwise operation is 1 per real number it writes, whatever function it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

Formula = Callable[[Sequence[Any], Any], int]
"""FLOPs from the positional arguments and the result."""


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in an argument or a result, however deep in lists."""
    if isinstance(tree, Tensor):
        return [tree]
    return [one for item in tree for one in tensors(item)] if isinstance(tree, (list, tuple)) else []


def reals(tree: Any) -> int:
    """Real numbers in all tensors of an argument or a result; a complex one counts twice."""
    return sum(one.numel() * (2 if one.is_complex() else 1) for one in tensors(tree))


def nothing(args: Sequence[Any], out: Any) -> int:
    return 0


def per_input(factor: int) -> Formula:
    return lambda args, out: factor * reals(args[0])


def per_output(factor: int) -> Formula:
    return lambda args, out: factor * reals(out)


def product(args: Sequence[Any], out: Any) -> int:
    """Complex elementwise products are 6, real ones 1."""
    return sum(one.numel() * (6 if one.is_complex() else 1) for one in tensors(out))


def fft(factor: float, real_side: Literal["in", "out"] | None) -> Formula:
    def flops(args: Sequence[Any], out: Any) -> int:
        side = out if real_side == "out" else args[0]
        length = math.prod(side.shape[axis] for axis in args[1])
        return round(factor * side.numel() * math.log2(max(length, 1)))

    return flops


def sort(args: Sequence[Any], out: Any) -> int:
    x = args[0]
    axis = next((one for one in args[1:] if isinstance(one, int) and not isinstance(one, bool)), -1)
    return round(x.numel() * math.log2(max(x.shape[axis] if x.ndim else 1, 1)))


def topk(args: Sequence[Any], out: Any) -> int:
    """n log2 k: a heap of k, as torch's partial sort; so a fixed k stays linear in n."""
    return round(args[0].numel() * max(1.0, math.log2(max(args[1], 1))))


def search(args: Sequence[Any], out: Any) -> int:
    """A binary search for each output, in whichever of the first two arguments is the sorted one (the longer)."""
    return round(reals(out) * math.log2(1 + max(one.shape[-1] for one in tensors(args[:2]) if one.ndim)))


def vector_product(args: Sequence[Any], out: Any) -> int:
    return 2 * max(map(reals, tensors(args)))


def cubic(factor: float) -> Formula:
    """factor n^3 for each square matrix of the first argument; for m x n, factor m n min(m, n)."""

    def flops(args: Sequence[Any], out: Any) -> int:
        matrix = tensors(args)[0]
        return round(factor * reals(matrix) * min(matrix.shape[-2:]))

    return flops


def solve(factor: float, *, matrix: int = 0, right: int = 1) -> Formula:
    """factor n^3 for the factorisation and 2 n^2 for each right-hand side."""

    def flops(args: Sequence[Any], out: Any) -> int:
        size = args[matrix].shape[-1]
        return round(factor * reals(args[matrix]) * size) + 2 * size * reals(args[right])

    return flops


def distances(args: Sequence[Any], out: Any) -> int:
    return 3 * reals(tensors(out)[0]) * args[0].shape[-1]


def convolution_backward(args: Sequence[Any], out: Any) -> int:
    """Each product of the forward pass comes back once in either gradient; torch's formula forgets the groups."""
    grad, x, weight, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    places = (x if transposed else grad).shape
    once = 2 * places[0] * math.prod(places[2:]) * weight.numel()
    return once * (mask[0] + mask[1]) + (reals(grad) if mask[2] else 0)


def mkldnn_convolution(args: Sequence[Any], out: Any) -> int:
    return 2 * out.shape[0] * math.prod(out.shape[2:]) * args[1].numel()


def pool(args: Sequence[Any], out: Any) -> int:
    window = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
    return reals(tensors(out)[0]) * math.prod(window)


def recurrent(factor: int) -> Formula:
    """An LSTM layer: both weights (args 1 and 2) multiply every token, `factor` times."""
    return lambda args, out: factor * 2 * math.prod(args[0].shape[:-1]) * (args[1].numel() + args[2].numel())
