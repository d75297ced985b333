"""Formats and kernels: float32 and bf16 stay near float64, and every implementation gives what the
reference gives.

A method may amplify rounding by nature (a pseudo-inverse does). So the drift from float64 that is
allowed is some rounding errors of the format plus a multiple of the sensitivity: how much float64
outputs move when tokens and weights are rounded to it. Drift and sensitivity are root mean squares,
relative to that of the float64 result.

Kernels: on the device every implementation of the mixer's operations is held against the reference.
In float64 outputs and gradients agree but for rounding; in float32 and under bf16 autocast they
stay as near to float64 on the CPU as the check of precision allows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from subquad.errors import ConfigError
from subquad.nn import TokenMixer
from subquad.nn.kernels import OPERATIONS, REFERENCE, using, with_covered
from subquad.testing.calls import (
    afresh,
    call,
    draws,
    gradients,
    padded,
    settled_modes,
    total,
    values_and_gradients,
)
from subquad.testing.cases import compares, shows
from subquad.testing.meter import (
    CheckFailed,
    Comparison,
    Comparisons,
    Finding,
    NotTested,
    each,
    finite,
)
from subquad.testing.subject import CheckSubject

LENGTH, LONG = 33, 512
DECODED, DECODED_STEPS = 400, 200
"""Tokens, the last ones by steps: bf16 counts to 256."""
OWN_ROUNDINGS = {torch.float32: 64, torch.bfloat16: 4}
TIMES_SENSITIVITY = 4
ROUNDINGS = 12
"""So many are tried before a drift counts, and the largest sensitivity holds: where a method
chooses (a bucket, the largest k), one rounding may turn no choice.
"""
OFFSET = 0.5
"""Mean of the tokens: sums over them then grow with the length, as they do on data."""
LOUD = 30.0
KERNEL_LENGTHS = (1, 7, 33, 127)

_Case = tuple[TokenMixer, Tensor, Tensor]
"""A mixer, tokens (B, L, D) and mask (B, L)."""


@shows("float32 stays as near to float64 as the method allows")
def _precision_fp32(subject: CheckSubject) -> Finding:
    case = _float32_case(subject)
    return _compare_drift(case, torch.float32, _real_results(*case))


@shows("bf16 autocast stays near float64 and overflows nowhere")
def _precision_bf16(subject: CheckSubject) -> Finding:
    """The same numbers through bf16 autocast, as the engine runs it; nothing overflows, also
    with loud tokens.
    """
    mixer, x, keep = _float32_case(subject)
    results, loud = (_real_results(mixer, size * x, keep, autocast=True) for size in (1, LOUD))
    dtype = results["output"].dtype
    if dtype not in (torch.bfloat16, torch.float32):
        raise CheckFailed(f"output under bf16 autocast is {dtype}, expected bfloat16 or float32")
    what = f"outputs and gradients under bf16 autocast, tokens {LOUD:g} times as large"
    finite(what, *loud.values())
    return _compare_drift((mixer, x, keep), torch.bfloat16, results)


def _compare_drift(
    case: _Case, dtype: torch.dtype, results: dict[str, Tensor], by: str = ""
) -> Finding:
    """Hold `_real_results` of a float32 mixer, computed in a format, against float64."""
    mixer, x, keep = case
    name = f"{_word(dtype)}{by}"
    finite(f"outputs and gradients in {name}", *results.values())
    exact = copy.deepcopy(mixer).double()
    reference = _real_results(exact, x.double(), keep)
    drift = {key: _distance(results[key], value) for key, value in reference.items()}
    sensitivity = dict.fromkeys(reference, 0.0)
    allowed = _allowed(dtype, sensitivity)
    for seed in range(ROUNDINGS):
        rounded = _rounded_mixer(exact, dtype, seed)
        moved = _real_results(rounded, _rounded(x, dtype, seed), keep)
        for key, value in moved.items():
            sensitivity[key] = max(sensitivity[key], _distance(value, reference[key]))
        allowed = _allowed(dtype, sensitivity)
        if all(drift[key] <= allowed[key] for key in drift):
            break
    if beyond := [key for key in drift if not drift[key] <= allowed[key]]:
        key = max(beyond, key=lambda key: drift[key] / allowed[key])
        raise CheckFailed(
            f"{key} in {name} drifts from float64 by {drift[key]:.1e} (rms), allowed "
            f"{allowed[key]:.1e}: rounded inputs alone move it by {sensitivity[key]:.1e}"
        )
    parts = [f"{key} {drift[key]:.1e}, allowed {allowed[key]:.1e}" for key in drift]
    known = {"drift": drift, "sensitivity": sensitivity, "allowed": allowed}
    figures = {f"{key}_{what}": values[key] for key in drift for what, values in known.items()}
    return Finding("; ".join(parts), figures)


def _allowed(dtype: torch.dtype, sensitivity: Mapping[str, float]) -> dict[str, float]:
    own = OWN_ROUNDINGS[dtype] * torch.finfo(dtype).eps
    return {key: own + TIMES_SENSITIVITY * moved for key, moved in sensitivity.items()}


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _distance(got: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, relative to that of what is expected."""
    if torch.equal(got.double(), expected):
        return 0.0
    gap = (got.double() - expected).square().mean()
    return (gap / expected.square().mean()).sqrt().item()


def _float32_case(subject: CheckSubject) -> _Case:
    """A mixer in float32, in training where it draws nothing random there; its tokens (B, L, D)
    and mask (B, L).
    """
    length = subject.at_most(LONG)
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32) + OFFSET
    if draws(mixer, x[:, :LENGTH]):
        reason = "it draws random numbers in evaluation (determinism-eval), others in each format"
        raise NotTested(f", because {reason}")
    mixer.train("training" in settled_modes(mixer, x[:, :LENGTH]))
    return mixer, x, padded(length, (length, max(1, length - 37)))


def _real_results(
    mixer: TokenMixer, x: Tensor, keep: Tensor, *, autocast: bool = False
) -> dict[str, Tensor]:
    """Outputs at real tokens, also in evaluation, and gradients of their weighted sum by the
    tokens.
    """
    x = x.detach().clone().requires_grad_()
    result = call(afresh(mixer), x, keep, autocast=autocast, dropout=False)
    grad = gradients(total(result, keep), {"tokens": x})["tokens"]
    found = {"output": result.out.detach()[keep], "gradient": grad[keep]}
    if mixer.training:
        with torch.no_grad():
            evaluated = call(mixer.eval(), x, keep, autocast=autocast).out
        found["output in evaluation"] = evaluated[keep]
        mixer.train()
    if mixer.caches:
        found["output of steps"] = _decoded(mixer, x.detach()[:, :DECODED], autocast)
    return found


@torch.no_grad()
def _decoded(mixer: TokenMixer, x: Tensor, autocast: bool) -> Tensor:
    """Outputs of the last tokens, each by a step; of half of them where there are few."""
    start = x.shape[1] - min(DECODED_STEPS, x.shape[1] // 2)
    is_training = mixer.training
    mixer.eval()
    try:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            first, cache = mixer.prefill(x[:, :start].contiguous())
            outs = [first[:, -1]]
            for token in x[:, start:].unbind(1):
                out, cache = mixer.step(token, cache)
                outs.append(out)
        return torch.stack(outs, 1)
    finally:
        mixer.train(is_training)


def _rounded_mixer(exact: TokenMixer, dtype: torch.dtype, seed: int) -> TokenMixer:
    rounded = copy.deepcopy(exact)
    for weight in rounded.parameters():
        weight.data = _rounded(weight.data, dtype, seed)
    return rounded


def _rounded(x: Tensor, dtype: torch.dtype, seed: int) -> Tensor:
    """Numbers rounded to a format, in float64; with a seed they are first moved by up to half a
    rounding. float32 ones, which have that precision, are moved alone.
    """
    if dtype != torch.float32 and not seed:
        return x.to(dtype).double()
    generator = torch.Generator().manual_seed(2 + seed)
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) - 0.5
    moved = x.double() * (1 + noise * torch.finfo(dtype).eps)
    return moved if dtype == torch.float32 else moved.to(dtype).double()


def _choices(subject: CheckSubject) -> dict[str, dict[str, str]]:
    """What to force, by its name in words: each implementation the device may run, the reference
    only off the CPU.

    On another device than the CPU the mixer as it is, too.
    """
    kind, on_cpu = torch.device(subject.device).type, subject.device == "cpu"
    with using() as used:
        call(subject.build(), *subject.pair(LENGTH))
    choices = {} if on_cpu else {f"the mixer on {subject.device}": {}}
    for name in with_covered(used):
        for implementation in OPERATIONS[name].implementations:
            runs = kind in (implementation.devices or (kind,))
            if runs and not (on_cpu and implementation.name == REFERENCE):
                choices[f"{name} {implementation.name}"] = {name: implementation.name}
    return choices


def _no_choice(subject: CheckSubject) -> str:
    return "" if _choices(subject) else "has no operation with several implementations"


@compares(
    "every implementation of its operations on the device gives what the reference gives",
    excluded=_no_choice,
)
def _kernels(subject: CheckSubject) -> Comparisons:
    """Odd lengths and masks in float64; float32 and bf16 at one length, as far as an
    implementation takes them.
    """
    parts = []
    for label, forced in _choices(subject).items():
        ran = set[str]()
        for length in subject.lengths(*KERNEL_LENGTHS):
            for real in {length, (length + 1) // 2}:
                for comparison in _agree(subject, forced, label, length, real):
                    yield comparison
                    ran.add("float64")
        for dtype in (torch.float32, torch.bfloat16):
            if _stays_near(subject, forced, label, dtype):
                ran.add(_word(dtype))
        words = [word for word in ("float64", "float32", "bfloat16") if word in ran]
        none = "takes no tensors of these lengths and formats"
        parts.append(f"{label}: {', '.join(words) or none}")
    return "; ".join(parts)


def _agree(
    subject: CheckSubject, forced: Mapping[str, str], label: str, length: int, real: int
) -> Iterator[Comparison]:
    """In float64, of outputs, losses and all gradients; none where the implementation takes no
    such tensors.
    """
    mixer, x = subject.build(max_len=max(KERNEL_LENGTHS)), subject.tokens(2, length)
    case = mixer, x, padded(length, (length, real))
    with using(REFERENCE):
        expected = values_and_gradients(*case)
    try:
        with using(forced):
            got = values_and_gradients(*_moved(subject, case))
    except ConfigError:
        return
    for mine, wanted in zip(got, expected, strict=True):
        yield from each(_on_cpu(mine), wanted, f" by {label} at length {length}")


def _stays_near(
    subject: CheckSubject, forced: Mapping[str, str], label: str, dtype: torch.dtype
) -> bool:
    """As the checks of precision; False where the implementation takes no such tensors."""
    case = _float32_case(subject)
    try:
        with using(forced):
            found = _real_results(*_moved(subject, case), autocast=dtype != torch.float32)
    except ConfigError:
        return False
    with using(REFERENCE):
        _compare_drift(case, dtype, _on_cpu(found), f" by {label}")
    return True


def _moved(subject: CheckSubject, case: _Case) -> _Case:
    mixer, x, keep = case
    return copy.deepcopy(mixer).to(subject.device), x.to(subject.device), keep.to(subject.device)


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
