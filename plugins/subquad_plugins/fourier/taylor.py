"""Taylor factors that carry a Fourier sum from a whole frequency to one at most half a step beside it.

exp(-2 pi i delta n / N) = exp(-i pi delta) sum_p (-2 pi i delta)^p / p! t^p,  t = n / N - 1/2 in [-1/2, 1/2).

Letters: P terms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def taylor_factors(delta: Tensor, terms: int, dtype: torch.dtype) -> list[Tensor]:
    """exp(-i pi delta) (-2 pi i delta)^p / p! for p < P; P complex tensors of the shape of `delta`.

    Computed in float64 whatever `dtype` (of the real part) the result has; differentiable with respect to delta.
    """
    angle = -math.pi * delta.double()
    factor, step = torch.complex(angle.cos(), angle.sin()), torch.complex(torch.zeros_like(angle), 2 * angle)
    factors = [factor]
    for p in range(1, terms):
        factors.append(factors[-1] * step / p)
    return [torch.complex(factor.real.to(dtype), factor.imag.to(dtype)) for factor in factors]
