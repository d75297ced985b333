"""FLOPs of torch's operations, each as a formula of its arguments and its result.

Conventions, as in the literature: a multiply-add is 2; a complex FFT of length n is 5 n log2 n, a
real one half of it; a sort is n log2 n comparisons; an element-wise operation is 1 per real number
it writes, whatever function it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Formula = Callable[[Sequence[Any], Any], int]
"""FLOPs from the positional arguments and the result."""


def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in an argument or a result, however deep in lists."""
    if isinstance(tree, Tensor):
        return [tree]
    found = []
    if isinstance(tree, (list, tuple)):
        for part in tree:
            found += tensors_in(part)
    return found


def stored(x: Tensor) -> list[Tensor]:
    """What holds a tensor's numbers: itself, or indices and values of a sparse one; nothing is
    known of other layouts than COO.
    """
    if x.layout == torch.strided:
        return [x]
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    return []


def reals(tree: Any, of_complex: int = 2) -> int:
    """Real numbers in all tensors of an argument or a result; a complex one counts twice."""
    count = 0
    for tensor in tensors_in(tree):
        reals = of_complex if tensor.is_complex() else 1
        count += tensor.numel() * reals
    return count


def nothing(args: Sequence[Any], out: Any) -> int:
    return 0


def per_input(factor: int) -> Formula:
    def flops(args: Sequence[Any], out: Any) -> int:
        return factor * reals(args[0])

    return flops


def per_output(factor: int, of_complex: int = 2) -> Formula:
    def flops(args: Sequence[Any], out: Any) -> int:
        return factor * reals(out, of_complex)

    return flops


def fft(factor: float, *, is_real_out: bool = False) -> Formula:
    def flops(args: Sequence[Any], out: Any) -> int:
        x, axes = args[:2]
        longer = out if is_real_out else x
        depth = math.log2(max(math.prod([longer.shape[axis] for axis in axes]), 1))
        return round(factor * longer.numel() * depth)

    return flops


def sort(args: Sequence[Any], out: Any) -> int:
    x = args[0]
    axis = -1
    for arg in args[1:]:
        if type(arg) is int:
            axis = arg
            break
    length = x.shape[axis] if x.ndim else 1
    return round(x.numel() * math.log2(max(length, 1)))


def topk(args: Sequence[Any], out: Any) -> int:
    """n log2 k: a heap of k, as torch's partial sort; so a fixed k stays linear in n."""
    x, k = args[:2]
    return round(x.numel() * math.log2(max(k, 2)))


def search(place: int) -> Formula:
    """A binary search for each output in a sorted argument."""

    def flops(args: Sequence[Any], out: Any) -> int:
        depth = math.log2(1 + args[place].shape[-1])
        return round(reals(out) * depth)

    return flops


def trilinear(args: Sequence[Any], out: Any) -> int:
    """Two products and a sum for each number of its three factors' common shape."""
    factors = args[:3]
    expanded = args[3:6]
    shapes = []
    for factor, axes in zip(factors, expanded, strict=True):
        shape = list(factor.shape)
        for axis in axes:
            shape.insert(axis, 1)
        shapes.append(shape)
    return 3 * math.prod(torch.broadcast_shapes(*shapes))


def cubic(factor: float) -> Formula:
    """factor n^3 for each square matrix of the first argument; for m x n, factor m n min(m, n)."""

    def flops(args: Sequence[Any], out: Any) -> int:
        matrix, *_ = tensors_in(args)
        return round(factor * reals(matrix) * min(matrix.shape[-2:]))

    return flops


def solve(factor: float, *, matrix: int = 0, right: int = 1) -> Formula:
    """factor n^3 for the factorisation and 2 n^2 for each right-hand side."""

    def flops(args: Sequence[Any], out: Any) -> int:
        factored = args[matrix]
        size = factored.shape[-1]
        return round(factor * reals(factored) * size) + 2 * size * reals(args[right])

    return flops


def convolution_backward(args: Sequence[Any], out: Any) -> int:
    """Each product of the forward pass comes back once in either gradient; torch's formula
    forgets the groups.
    """
    grad, x, weight, *_ = args
    is_transposed = args[7]
    by_input, by_weight, by_bias = args[10]
    products = one_pass(x if is_transposed else grad, weight) * (by_input + by_weight)
    return products + by_bias * reals(grad)


def convolution(args: Sequence[Any], out: Any) -> int:
    _, weight, *_ = args
    return one_pass(out, weight)


def one_pass(convolved: Tensor, weight: Tensor) -> int:
    """Every weight meets every place of every sample."""
    samples, _, *sizes = convolved.shape
    return 2 * (samples * math.prod(sizes)) * weight.numel()


def lstm(factor: int) -> Formula:
    """Both weights multiply every token."""

    def flops(args: Sequence[Any], out: Any) -> int:
        x, first, second, *_ = args
        return factor * math.prod(x.shape[:-1]) * (first.numel() + second.numel())

    return flops


def product(args: Sequence[Any], out: Any) -> int:
    """A vector, or a matrix and a vector: two for each number of the larger one."""
    return 2 * max(map(reals, tensors_in(args)))


def distances(args: Sequence[Any], out: Any) -> int:
    width = args[0].shape[-1]
    pairs, *_ = tensors_in(out)
    return 3 * reals(pairs) * width


def pool(args: Sequence[Any], out: Any) -> int:
    window = args[1]
    if isinstance(window, int):
        window = [window]
    pooled, *_ = tensors_in(out)
    size = math.prod(window)
    return reals(pooled) * size
