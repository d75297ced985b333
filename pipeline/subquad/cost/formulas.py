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
    return sum(
        tensor.numel() * (of_complex if tensor.is_complex() else 1) for tensor in tensors_in(tree)
    )


def nothing(args: Sequence[Any], out: Any) -> int:
    return 0


def per_input(factor: int, args: Sequence[Any], out: Any) -> int:
    return factor * reals(args[0])


def per_output(factor: int, args: Sequence[Any], out: Any, of_complex: int = 2) -> int:
    return factor * reals(out, of_complex)


def fft(factor: float, args: Sequence[Any], out: Any, *, is_real_out: bool = False) -> int:
    x, axes = args[:2]
    longer = out if is_real_out else x
    points = math.prod([longer.shape[axis] for axis in axes])
    return round(factor * longer.numel() * math.log2(max(points, 1)))


def sort(args: Sequence[Any], out: Any) -> int:
    x, *others = args
    axis = next((other for other in others if type(other) is int), -1)
    length = x.shape[axis] if x.ndim else 1
    return round(x.numel() * math.log2(max(length, 1)))


def topk(args: Sequence[Any], out: Any) -> int:
    """n log2 k: a heap of k, as torch's partial sort; so a fixed k stays linear in n."""
    x, k = args[:2]
    return round(x.numel() * math.log2(max(k, 2)))


def search(place: int, args: Sequence[Any], out: Any) -> int:
    """A binary search for each output in a sorted argument."""
    return round(reals(out) * math.log2(1 + args[place].shape[-1]))


def trilinear(args: Sequence[Any], out: Any) -> int:
    """Two products and a sum for each number of its three factors' common shape."""
    shapes = []
    for factor, axes in zip(args[:3], args[3:6], strict=True):
        shape = list(factor.shape)
        for axis in axes:
            shape.insert(axis, 1)
        shapes.append(shape)
    return 3 * math.prod(torch.broadcast_shapes(*shapes))


def cubic(factor: float, args: Sequence[Any], out: Any) -> int:
    """factor n^3 for each square matrix of the first argument; for m x n, factor m n min(m, n)."""
    matrix, *_ = tensors_in(args)
    return round(factor * reals(matrix) * min(matrix.shape[-2:]))


def solve(factor: float, args: Sequence[Any], out: Any, *, matrix: int = 0, right: int = 1) -> int:
    """factor n^3 for the factorisation and 2 n^2 for each right-hand side."""
    size = args[matrix].shape[-1]
    return round(factor * reals(args[matrix]) * size) + 2 * size * reals(args[right])


def convolution_backward(args: Sequence[Any], out: Any) -> int:
    """Each product of the forward pass comes back once in either gradient; torch's formula
    forgets the groups.
    """
    grad, x, weight, *_ = args
    by_input, by_weight, by_bias = args[10]
    convolved = x if args[7] else grad  # transposed
    return _one_pass(convolved, weight) * (by_input + by_weight) + by_bias * reals(grad)


def convolution(args: Sequence[Any], out: Any) -> int:
    _, weight, *_ = args
    return _one_pass(out, weight)


def _one_pass(convolved: Tensor, weight: Tensor) -> int:
    """Every weight meets every place of every sample."""
    samples, _, *sizes = convolved.shape
    return 2 * (samples * math.prod(sizes)) * weight.numel()


def lstm(factor: int, args: Sequence[Any], out: Any) -> int:
    """Both weights multiply every token."""
    x, first, second, *_ = args
    return factor * math.prod(x.shape[:-1]) * (first.numel() + second.numel())


def product(args: Sequence[Any], out: Any) -> int:
    """A vector, or a matrix and a vector: two for each number of the larger one."""
    return 2 * max(map(reals, tensors_in(args)))


def matrix_product(args: Sequence[Any], out: Any) -> int:
    """Each number of the left factor meets a row of the right one."""
    *_, left, right = tensors_in(args)
    return 2 * left.numel() * right.shape[-1]


def distances(args: Sequence[Any], out: Any) -> int:
    pairs, *_ = tensors_in(out)
    return 3 * reals(pairs) * args[0].shape[-1]


def pool(args: Sequence[Any], out: Any) -> int:
    window = args[1]
    pooled, *_ = tensors_in(out)
    return reals(pooled) * (window if isinstance(window, int) else math.prod(window))
