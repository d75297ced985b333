"""Kernels of flash-linear-attention against our references: values, states and all gradients.

Triton's interpreter cannot tune a kernel, counts loops by plain integers, and calculates with the
bits of bf16: this is mended here.
"""

from __future__ import annotations

import builtins
import sys

import pytest
import torch
import torch.nn.functional as F
from built_in import abouts
from interpreted import assert_near, on_cpu

from subquad.nn.kernels import using
from subquad.nn.mixer import as_output
from subquad_check.subject import check_subjects
from subquad_plugins.numerics import fla
from subquad_plugins.numerics.delta_rule import _RULE
from subquad_plugins.numerics.features import _CAUSAL
from subquad_plugins.numerics.selective_scan import _SCAN
from subquad_plugins.numerics.short_conv import _SHORT

pytest.importorskip("fla.ops")


class Count(int):
    def to(self, dtype):
        return self


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    from fla.modules import causal_conv1d  # noqa: F401
    from fla.ops import gated_delta_rule, simple_gla  # noqa: F401
    from triton.language import bfloat16, float32
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, interpreter_builder

    def counted(*ends):
        return map(
            Count,
            builtins.range(
                *(int(end.handle.data.item() if hasattr(end, "handle") else end) for end in ends)
            ),
        )

    def in_float32(name):
        function = getattr(InterpreterBuilder, name)

        def called(self, first, *rest):
            tensors = [
                self.cast_impl(x, float32) if getattr(x, "dtype", None) == bfloat16 else x
                for x in (first, *rest)
            ]
            found = function(self, *tensors)
            halved = first.dtype == bfloat16 and name != "create_dot"
            return self.cast_impl(found, bfloat16) if halved else found

        monkeypatch.setattr(InterpreterBuilder, name, called)

    def summed(self, x):
        if x.dtype == bfloat16:
            x = self.to_tensor(interpreter_builder.cast_impl(x.handle, float32).data, float32)
        return add(self, x)

    add = ReduceOps.sum
    for name in ("create_dot", "binary_op", "unary_op"):
        in_float32(name)
    monkeypatch.setattr(ReduceOps, "sum", summed)
    monkeypatch.setattr(Autotuner, "prune_configs", lambda self, kwargs: self.configs[:1])
    for name in [module for module in sys.modules if module.startswith("fla.")]:
        monkeypatch.setattr(sys.modules[name], "range", counted, raising=False)
    for kernel in (_RULE, _CAUSAL, _SHORT):
        on_cpu(monkeypatch, kernel)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request, monkeypatch):
    """Of q, k and v. float32 needs TF32."""
    allowed = request.param == torch.float32
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", allowed)
    return request.param


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def heads(length=70, width=16, values=32):
    q, k = (F.normalize(tensor, dim=-1) for tensor in drawn(2, 1, 2, length, width))
    return q, k, drawn(1, 2, length, values)


def results(operation, given, forced):
    """The reference's are of float64."""
    given = [tensor.detach() if torch.is_tensor(tensor) else tensor for tensor in given]
    if forced == "reference":
        given = [tensor.double() if torch.is_tensor(tensor) else tensor for tensor in given]
    wanted = [tensor.requires_grad_() for tensor in given if torch.is_tensor(tensor)]
    with using({operation.name: forced} if forced else {}) as used:
        found = operation(*given)
    assert used[operation.name] == (forced or "fla")
    found = [found] if torch.is_tensor(found) else found
    weights = [drawn(*tensor.shape).to(tensor.dtype) for tensor in found]
    return [*found, *torch.autograd.grad(found, wanted, weights)]


def agree(operation, given, dtype):
    """To rounding; factors of products are rounded to bf16 on the way, where they come so."""
    found = results(operation, given, "")
    tolerance = 1e-5 if dtype == torch.float32 else 3 * torch.finfo(dtype).eps
    assert_near(found, results(operation, given, "reference"), tolerance)
    return found


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("starts", [False, True])
def test_the_delta_rule(replaces, starts, dtype):
    q, k, v = (tensor.to(dtype) for tensor in heads())
    log_decay, beta = -drawn(1, 2, 70).abs(), drawn(1, 2, 70).sigmoid()
    given = (
        q,
        k,
        v,
        drawn(1, 2, 16, 32) if starts else None,
        log_decay,
        beta if replaces else None,
    )
    out, state, *_ = agree(_RULE, given, dtype)
    assert (out.dtype, state.dtype) == (dtype, torch.float32)


@pytest.mark.parametrize("width", [16, 272])
def test_sums_of_features_with_a_column_of_ones(width, dtype):
    """More features than the delta rule takes, too."""
    q, k, v = (tensor.to(dtype) for tensor in heads(width=width))
    given = (q, k, F.pad(v, (0, 1), value=1.0), drawn(1, 2, width, 33))
    _, state, *_ = agree(_CAUSAL, given, dtype)
    assert state.dtype == torch.float32


def test_many_samples_are_taken_in_parts(monkeypatch):
    monkeypatch.setattr(fla, "TOGETHER", 1)
    q, k, v = (drawn(3, 1, 5, 16).to(torch.bfloat16) for _ in range(3))
    agree(_CAUSAL, (q, k, v, drawn(3, 1, 16, 16)), torch.bfloat16)


@pytest.mark.parametrize("silu", [False, True])
def test_short_convolutions(silu, dtype):
    x, weight, bias = drawn(2, 9, 24).to(dtype)[..., 5:], drawn(19, 4), drawn(19)
    for given in ((x, weight, bias, silu), (x, weight, None, silu)):
        agree(_SHORT, given, dtype)


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, operation) for name, about in abouts().items() for operation in about.fla],
)
def test_mixers_run_it_under_autocast_without_tf32(name, operation, monkeypatch):
    on_cpu(monkeypatch, _SCAN)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    subject = next(one for one in check_subjects(f"subquad:{name}", dim=32) if one.causal)
    built = subject.build(max_len=20, dtype=torch.float32)
    x = subject.tokens(1, 20, dtype=torch.float32)
    with using() as used, torch.autocast("cpu", torch.bfloat16):
        found = as_output(built(x)).out
    assert used[operation] == "fla"
    first = abouts()[name].first
    assert used == used | first
    expected = as_output(built.double()(x.double())).out
    assert_near([found], [expected], 0.03)
