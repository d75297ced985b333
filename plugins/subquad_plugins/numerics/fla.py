"""Kernels of the library flash-linear-attention (fla), where it is installed, as implementations of
our operations.

They take bf16 as it comes and sum in fp32. Their products of fp32 are in TF32, so those need
`train.tf32`. First choice on CUDA by count: of chunks they keep a state each, where the plain forms
also write scores, products and their fp32 copies.

Letters: B batch, H heads, L length, E width of keys, V of values.
Reference: Yang and Zhang 2024, FLA: A Triton-Based Library for Hardware-Efficient Implementations
of Linear Attention.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation

WIDEST = 256
"""Keys that its kernel of the delta rule takes."""

TOGETHER = 1 << 19
"""Tokens of heads, B H L, that a call takes: enough work for any GPU, and what the call makes for
itself is little beside what it is given.
"""

_WHOLE = 16
"""Numbers that rows of a matrix are a multiple of: of bf16 it takes no odd ones."""


def offered(operation: Operation, function: Callable[..., Any], when: Callable[..., bool]) -> None:
    """Give the operation one of these functions, of the same first arguments."""
    if find_spec("fla") is not None:
        dtypes = (torch.float32, torch.bfloat16)
        operation.implementation("fla", devices=("cuda",), dtypes=dtypes, when=when)(function)


def multiplies(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    before: Tensor | None,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> bool:
    """Whether `recurrence` takes it."""
    allowed = q.dtype == torch.bfloat16 or bool(torch.backends.cuda.matmul.allow_tf32)
    fits = beta is None or q.shape[-1] <= WIDEST
    return allowed and fits and not torch.compiler.is_compiling()


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    before: Tensor | None = None,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `delta_rule`; nothing is forgotten where `log_decay` is None."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.simple_gla import chunk_simple_gla

    rows, columns = q.shape[-1], v.shape[-1]
    given = {name: _filled(x.transpose(1, 2)) for name, x in (("q", q), ("k", k), ("v", v))}
    for name, x in (("g", log_decay), ("beta", beta)):
        if x is not None:
            given[name] = x.mT.contiguous()
    if before is not None:
        given["initial_state"] = F.pad(before, (0, -columns % _WHOLE, 0, -rows % _WHOLE))
    rule: Any = chunk_simple_gla if beta is None else chunk_gated_delta_rule
    samples = max(1, TOGETHER // (q.shape[1] * q.shape[2]))
    parts = zip(*(x.split(samples) for x in given.values()), strict=True)
    found = [
        rule(**dict(zip(given, part, strict=True)), scale=1.0, output_final_state=True)
        for part in parts
    ]
    if len(found) == 1:
        out, after = found[0]
    else:
        out, after = (torch.cat(results) for results in zip(*found, strict=True))
    return out[..., :columns].transpose(1, 2), after[..., :rows, :columns]


def convolves(x: Tensor, *others: Any) -> bool:
    """Whether `convolution` takes it: channels lie side by side."""
    return x.stride(-1) == 1 and x.shape[1] > 0 and not torch.compiler.is_compiling()


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """As `ShortConv`."""
    from fla.modules import causal_conv1d

    made: Any = causal_conv1d.causal_conv1d
    return made(x, weight, bias, activation="silu" if silu else None)[0]


def _filled(x: Tensor) -> Tensor:
    """(B, L, H, E), contiguous, with zeros up to a whole width."""
    if rest := -x.shape[-1] % _WHOLE:
        return F.pad(x, (0, rest))
    return x.contiguous()
