"""When kernels in Triton run, and how they are started. Imports no Triton."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

FORMATS = (torch.float32, torch.bfloat16, torch.float16)
"""Of tensors that kernels take. In float64 the plain forms run."""


def kernels_run(first: Tensor, *others: Tensor | None) -> bool:
    """Whether Triton is installed, no compiler traces the call, and a kernel can read these
    tensors.

    A compiler could not look into a kernel. The tensors are on the device of the first one, and
    none is empty.
    """
    if torch.compiler.is_compiling() or not _has_triton():
        return False
    given = (first, *(tensor for tensor in others if tensor is not None))
    return all(tensor.device == first.device and tensor.numel() for tensor in given)


def fitting_mask(keep: Tensor | None, x: Tensor) -> bool:
    """Whether a mask has a bool for each token of x (B, L, ...): a kernel would misread one that
    torch broadcasts.
    """
    return keep is None or (keep.dtype == torch.bool and keep.shape == x.shape[:2])


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def launch(kernel: Any, grid: tuple[int, ...], first: Any, *args: Any, **constants: Any) -> None:
    """Start a kernel on the device of its first argument, a tensor or a tuple that begins with one,
    with multiplications and additions fused.
    """
    with torch.cuda.device_of(first[0] if isinstance(first, tuple) else first):
        kernel[grid](first, *args, **constants, enable_fp_fusion=True)
