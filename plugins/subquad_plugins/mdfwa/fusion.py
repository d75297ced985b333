"""Two branches made one: gelu(X' + X~ + b), or with a gate G = sigmoid(g), gelu(G X' + (1 - G) X~ +
b).

Operation "mdfwa.fusion": the reference is plain torch, "triton" reads each number once
(`kernel.py`).

Letters: B batch, L length, D width.
Reference: MDFWA, Sec. 3.4.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.launching import FORMATS, kernels_run


def fuse(spectral: Tensor, banded: Tensor, gate: Tensor | None, bias: Tensor) -> Tensor:
    """The fusion.

    Args:
        spectral: X', (.., D).
        banded: X~, likewise.
        gate: g, likewise, or None.
        bias: b, (D,).

    Returns:
        (.., D), in the wider dtype of branches and bias.
    """
    return _FUSION(spectral, banded, gate, bias)


def _reference(spectral: Tensor, banded: Tensor, gate: Tensor | None, bias: Tensor) -> Tensor:
    if gate is None:
        total = spectral + banded
    else:
        total = torch.lerp(banded, spectral, torch.sigmoid(gate))
    return F.gelu(total + bias)


_FUSION = Operation("mdfwa.fusion", reference=_reference)


def _fits(spectral: Tensor, banded: Tensor, gate: Tensor | None, bias: Tensor) -> bool:
    """Whether the kernel takes it."""
    if gate is None:
        others = (banded,)
    else:
        others = (banded, gate)
    alike = all(
        tensor.dtype == spectral.dtype and tensor.shape == spectral.shape for tensor in others
    )
    alike &= bias.shape == spectral.shape[-1:]
    return kernels_run(spectral, *others, bias) and alike and bias.dtype in FORMATS


@_FUSION.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_fits)
def _triton(spectral: Tensor, banded: Tensor, gate: Tensor | None, bias: Tensor) -> Tensor:
    from subquad_plugins.mdfwa.kernel import Fusion

    return Fusion.apply(spectral, banded, gate, bias)  # pyright: ignore[reportReturnType]
