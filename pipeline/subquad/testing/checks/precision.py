"""Drift of float32 and bf16 from float64, measured against what the method itself makes of rounded inputs.

A method may amplify rounding by nature (a pseudo-inverse does). So the drift that is allowed is some rounding errors of
the format plus a multiple of the sensitivity: how much float64 outputs move when tokens and weights are rounded to it.
Drift and sensitivity are root mean squares, relative to that of the float64 result.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from subquad.nn import MixerOutput, TokenMixer
from subquad.testing.calls import autocast_call, call, gradients, padded, total_of
from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import finite
from subquad.testing.subject import Subject

LENGTH = 512
OWN_ROUNDINGS = {torch.float32: 64, torch.bfloat16: 4}
TIMES_SENSITIVITY = 4
OFFSET = 0.5
"""Mean of the tokens: sums over them then grow with the length, as they do on data."""
LOUD = 30.0

Results = dict[str, Tensor]


def fp32(subject: Subject) -> Finding:
    """The same numbers through float32."""
    mixer, x, keep = _float32(subject)
    return _judge(mixer, x, keep, torch.float32, _results(mixer, x, keep))


def bf16(subject: Subject) -> Finding:
    """The same numbers through bf16 autocast, as the engine runs it; nothing overflows, also with loud tokens."""
    mixer, x, keep = _float32(subject)
    results = _results(mixer, x, keep, autocast_call)
    loud = _results(mixer, LOUD * x, keep, autocast_call)
    if results["output"].dtype not in (torch.bfloat16, torch.float32):
        raise CheckFailed(f"output under bf16 autocast is {results['output'].dtype}, expected bfloat16 or float32")
    finite(f"outputs and gradients under bf16 autocast, tokens {LOUD:g} times as large", *loud.values())
    return _judge(mixer, x, keep, torch.bfloat16, results)


def _judge(mixer: TokenMixer, x: Tensor, keep: Tensor, dtype: torch.dtype, results: Results) -> Finding:
    name, figures, seen = str(dtype).removeprefix("torch."), {}, []
    finite(f"outputs and gradients in {name}", *results.values())
    exact = copy.deepcopy(mixer).double()
    reference = _results(exact, x.double(), keep)
    moved = _results(_rounded(exact, dtype), x.to(dtype).double() if dtype != x.dtype else _nudged(x), keep)
    for key in ("output", "gradient"):
        drift, sensitivity = (distance(one[key].double(), reference[key]) for one in (results, moved))
        allowed = OWN_ROUNDINGS[dtype] * torch.finfo(dtype).eps + TIMES_SENSITIVITY * sensitivity
        figures |= {f"{key}_drift": drift, f"{key}_sensitivity": sensitivity, f"{key}_allowed": allowed}
        seen.append(f"{key} {drift:.1e}, allowed {allowed:.1e}")
        if drift > allowed:
            raise CheckFailed(
                f"{key} in {name} drifts from float64 by {drift:.1e} (rms), allowed {allowed:.1e}: rounded inputs "
                f"alone move it by {sensitivity:.1e}"
            )
    return Finding("; ".join(seen), figures)


def distance(got: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, relative to that of what is expected."""
    if torch.equal(got, expected):
        return 0.0
    return ((got - expected).square().mean() / expected.square().mean()).sqrt().item()


def _float32(subject: Subject) -> tuple[TokenMixer, Tensor, Tensor]:
    length = subject.at_most(LENGTH)
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32) + OFFSET
    return mixer, x, padded(length, (length, max(1, length - 37)))


def _results(mixer: TokenMixer, x: Tensor, keep: Tensor, run: Callable[..., MixerOutput] = call) -> Results:
    """Outputs at real tokens, and gradients of their weighted sum by the tokens."""
    x = x.detach().clone().requires_grad_()
    result = run(mixer, x, keep)
    (grad,) = gradients(total_of(result, keep), [x])
    return {"output": result.out.detach()[keep], "gradient": grad[keep]}


def _rounded(mixer: TokenMixer, dtype: torch.dtype) -> TokenMixer:
    """A float64 mixer whose weights were rounded to `dtype`; moved by one rounding where they have that precision."""
    moved = copy.deepcopy(mixer)
    with torch.no_grad():
        for weight in moved.parameters():
            weight.copy_(_nudged(weight.float()) if dtype == torch.float32 else weight.to(dtype).double())
    return moved


def _nudged(x: Tensor) -> Tensor:
    """float32 numbers moved by up to one rounding error, in float64."""
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 0.5
    return x.double() * (1 + noise * torch.finfo(torch.float32).eps)


CHECKS = (
    Check(name="precision-fp32", shows="float32 stays as near to float64 as the method allows", run=fp32),
    Check(name="precision-bf16", shows="bf16 autocast stays near float64 and overflows nowhere", run=bf16),
)
