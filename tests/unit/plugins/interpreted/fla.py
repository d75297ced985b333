"""Kernels of flash-linear-attention against our references: values, states and all gradients.

Triton's interpreter cannot tune a kernel, and counts loops by plain integers: both are mended here.
"""

from __future__ import annotations

import builtins
import sys

import pytest
import torch
import torch.nn.functional as F
from interpreted import assert_near, on_cpu

from subquad.nn.kernels import using
from subquad_plugins.numerics.delta_rule import _RULE
from subquad_plugins.numerics.features import _CAUSAL

pytest.importorskip("fla.ops")


class Count(int):
    def to(self, dtype):
        return self


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    from fla.ops import gated_delta_rule, simple_gla  # noqa: F401
    from triton.runtime.autotuner import Autotuner

    def counted(*ends):
        return map(
            Count,
            builtins.range(
                *(int(end.handle.data.item() if hasattr(end, "handle") else end) for end in ends)
            ),
        )

    monkeypatch.setattr(Autotuner, "prune_configs", lambda self, kwargs: self.configs[:1])
    for name in [module for module in sys.modules if module.startswith("fla.ops")]:
        monkeypatch.setattr(sys.modules[name], "range", counted, raising=False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    for kernel in (_RULE, _CAUSAL):
        on_cpu(monkeypatch, kernel)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def heads(length=70, width=16, values=32):
    q, k = (F.normalize(tensor, dim=-1) for tensor in drawn(2, 1, 2, length, width))
    return q, k, drawn(1, 2, length, values)


def results(operation, given, forced):
    """The reference's are of float64."""
    dtype = torch.float64 if forced == "reference" else torch.float32
    given = [
        tensor if tensor is None else tensor.to(dtype, copy=True).requires_grad_()
        for tensor in given
    ]
    with using({operation.name: forced}):
        found = operation(*given)
    wanted = [tensor for tensor in given if tensor is not None]
    weights = [drawn(*tensor.shape).to(tensor.dtype) for tensor in found]
    return [*found, *torch.autograd.grad(found, wanted, weights)]


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("starts", [False, True])
def test_the_delta_rule(replaces, starts):
    q, k, v = heads()
    log_decay, beta = -drawn(1, 2, 70).abs(), drawn(1, 2, 70).sigmoid()
    given = (
        q,
        k,
        v,
        drawn(1, 2, 16, 32) if starts else None,
        log_decay,
        beta if replaces else None,
    )
    assert_near(results(_RULE, given, "fla"), results(_RULE, given, "reference"), 1e-5)


def test_sums_of_features_with_a_column_of_ones():
    q, k, v = heads()
    given = (q, k, F.pad(v, (0, 1), value=1.0), drawn(1, 2, 16, 33))
    assert_near(results(_CAUSAL, given, "fla"), results(_CAUSAL, given, "reference"), 1e-5)
