"""Kernels of the library flash-linear-attention (fla), where it is installed, as implementations of
our operations.

Their products of fp32 are in TF32, so they run on a GPU with `train.tf32`.

Letters: B batch, H heads, L length, E width of keys, V of values.
Reference: Yang and Zhang 2024, FLA: A Triton-Based Library for Hardware-Efficient Implementations
of Linear Attention.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from subquad.nn.kernels import Operation

WIDEST = 256
"""Keys that all of its kernels take."""


def offered(operation: Operation) -> None:
    """Give it `recurrence`, whose arguments it has in the same order, or the first of them."""
    if find_spec("fla") is not None:
        dtypes = (torch.float32, torch.bfloat16, torch.float16)
        operation.implementation("fla", devices=("cuda",), dtypes=dtypes, when=_runs)(recurrence)


def _runs(q: Tensor, *others: Any) -> bool:
    allowed = bool(torch.backends.cuda.matmul.allow_tf32)
    return allowed and q.shape[-1] <= WIDEST and not torch.compiler.is_compiling()


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

    tokens = [tensor.transpose(1, 2).contiguous() for tensor in (q, k, v)]
    given: dict[str, Any] = {"scale": 1.0, "initial_state": before, "output_final_state": True}
    given |= {
        name: tensor.mT.contiguous()
        for name, tensor in (("g", log_decay), ("beta", beta))
        if tensor is not None
    }
    rule: Any = chunk_simple_gla if beta is None else chunk_gated_delta_rule
    out, after = rule(*tokens, **given)
    return out.transpose(1, 2), after
