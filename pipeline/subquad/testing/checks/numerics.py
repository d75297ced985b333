"""Numbers: gradients, the same ones from the same call, compiled, in float32 and bf16, and from every implementation.

Gradients are compared with finite differences by torch's gradcheck: by one sample's tokens element by element; by all
tokens and each weight along a random direction, since there are thousands of them and a wrong element turns up in any.

A method may amplify rounding by nature (a pseudo-inverse does). So the drift from float64 that is allowed is some
rounding errors of the format plus a multiple of the sensitivity: how much float64 outputs move when tokens and weights
are rounded to it. Drift and sensitivity are root mean squares, relative to that of the float64 result.

Kernels: on the device every implementation of the mixer's operations is held against the reference. In float64 outputs
and gradients agree but for rounding; in float32 and under bf16 autocast they stay as near to float64 on the CPU as the
check of precision allows.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from subquad.errors import ConfigError
from subquad.nn import TokenMixer, as_output
from subquad.nn.kernels import OPERATIONS, REFERENCE, using
from subquad.testing.check import ROUNDING, CheckFailed, Finding, Meter, finite, shows
from subquad.testing.subject import CheckSubject, call, gradients, padded, total, trainable

LENGTH, GRADCHECK_LENGTH, LONG = 33, 5, 512
ABSOLUTE, RELATIVE, STEP = 1e-6, 1e-4, 1e-6
OWN_ROUNDINGS = {torch.float32: 64, torch.bfloat16: 4}
TIMES_SENSITIVITY = 4
OFFSET = 0.5
"""Mean of the tokens: sums over them then grow with the length, as they do on data."""
LOUD = 30.0
KERNEL_LENGTHS = (1, 7, 33, 127)

_Results = dict[str, Tensor]


@shows("gradients equal finite differences")
def _gradients(subject: CheckSubject) -> Finding:
    """Outputs at real tokens and extra losses, by tokens and by weights, with padding."""
    mixer, (tokens, keep) = subject.build(), subject.pair(GRADCHECK_LENGTH)
    named = {name: weight.detach().clone() for name, weight in trainable(mixer).items()}
    inputs = [one.requires_grad_() for one in (tokens, *named.values())]

    def values(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        result = as_output(functional_call(mixer, dict(zip(named, given, strict=True)), (x,), {"keep": keep}))
        return tuple(one for one in (result.out[keep], *result.losses.values()) if one.requires_grad)

    if not values(*inputs):
        return Finding("nothing to differentiate: outputs are constant")
    sample = inputs[0][1:].detach().requires_grad_()
    _gradcheck(lambda x: values(torch.cat([inputs[0][:1], x]), *inputs[1:]), [sample], ("the tokens",), fast=False)
    _gradcheck(values, inputs, ("the tokens", *named), fast=True)
    return Finding(f"{sample.numel()} inputs one by one, {len(named)} weights along a direction", {"allowed": RELATIVE})


def _gradcheck(
    function: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], names: tuple[str, ...], *, fast: bool
) -> None:
    """torch's gradcheck; its message comes without matrices, and with names for numbers."""
    if not function(*inputs):
        return
    check = partial(torch.autograd.gradcheck, eps=STEP, atol=ABSOLUTE, rtol=RELATIVE, check_undefined_grad=False)
    try:
        check(function, inputs, fast_mode=fast)
    except GradcheckError as error:
        found = re.search(r"output (\d+) with respect to input (\d+)", str(error))
        if not found:
            raise CheckFailed(" ".join(str(error).split())[:300]) from None
        output = "outputs" if found[1] == "0" else f"extra loss {found[1]}"
        raise CheckFailed(
            f"gradient of the {output} by {names[int(found[2])]} is not that of finite differences, "
            f"allowed {RELATIVE:g} relative, {ABSOLUTE:g} absolute"
        ) from None


@shows("calls in evaluation are equal and draw nothing random")
def _determinism_eval(subject: CheckSubject) -> Finding:
    """Two calls in evaluation, from different states of the random generator, which they leave as it was."""
    mixer, (x, keep), meter = subject.build(), subject.pair(LENGTH), Meter(0.0)
    with torch.no_grad():
        first, second = (call(mixer, x, keep, seed=seed).out for seed in (0, 1))
        meter.compare("output of a second call in evaluation", second, first)
        before = torch.get_rng_state()
        mixer(x, keep=keep)
    if not torch.equal(before, torch.get_rng_state()):
        raise CheckFailed("the call draws random numbers in evaluation")
    return meter.finding()


@shows("training steps with equal seeds are equal")
def _determinism_train(subject: CheckSubject) -> Finding:
    """Two mixers built alike, in training mode with equal seeds: outputs, extra losses and gradients."""
    (x, keep), meter = subject.pair(LENGTH), Meter(0.0)
    first, second = (_values_and_gradients(subject.build().train(), x, keep, seed=4) for _ in range(2))
    for mine, wanted in zip(second, first, strict=True):
        for name in wanted:
            meter.compare(f"{name} of a second mixer with equal seeds", mine[name], wanted[name])
    return meter.finding()


@shows("torch.compile gives the same outputs and gradients")
def _compiled(subject: CheckSubject) -> Finding:
    """Outputs, extra losses and gradients, with a mask."""
    mixer, (x, keep), meter = subject.build(), subject.pair(13), Meter(ROUNDING)
    torch._dynamo.reset()
    try:
        got = _values_and_gradients(torch.compile(mixer, backend=subject.compiler), x, keep)  # pyright: ignore
    finally:
        torch._dynamo.reset()
    for mine, wanted in zip(got, _values_and_gradients(mixer, x, keep), strict=True):
        meter.compare_all(mine, wanted, f" compiled by {subject.compiler}")
    return meter.finding(subject.compiler)


def _values_and_gradients(mixer: nn.Module, x: Tensor, keep: Tensor, *, seed: int = 0) -> tuple[_Results, _Results]:
    """Output and extra losses, and gradients of their weighted sum by tokens and weights; by name."""
    x = x.clone().requires_grad_()
    result = call(mixer, x, keep, seed=seed)
    values = {"output": result.out.detach(), **{f"loss {k!r}": v.detach() for k, v in result.losses.items()}}
    found = gradients(total(result), {"tokens": x, **trainable(mixer)})
    return values, {f"gradient by {name.removeprefix('_orig_mod.')}": grad for name, grad in found.items()}


@shows("float32 stays as near to float64 as the method allows")
def _precision_fp32(subject: CheckSubject) -> Finding:
    mixer, x, keep = _float32_case(subject)
    return _judge_drift(mixer, x, keep, torch.float32, _real_results(mixer, x, keep))


@shows("bf16 autocast stays near float64 and overflows nowhere")
def _precision_bf16(subject: CheckSubject) -> Finding:
    """The same numbers through bf16 autocast, as the engine runs it; nothing overflows, also with loud tokens."""
    mixer, x, keep = _float32_case(subject)
    results, loud = (_real_results(mixer, size * x, keep, autocast=True) for size in (1, LOUD))
    if results["output"].dtype not in (torch.bfloat16, torch.float32):
        raise CheckFailed(f"output under bf16 autocast is {results['output'].dtype}, expected bfloat16 or float32")
    finite(f"outputs and gradients under bf16 autocast, tokens {LOUD:g} times as large", *loud.values())
    return _judge_drift(mixer, x, keep, torch.bfloat16, results)


def _judge_drift(
    mixer: TokenMixer, x: Tensor, keep: Tensor, dtype: torch.dtype, results: _Results, by: str = ""
) -> Finding:
    """Hold `_real_results` of a float32 mixer, computed in a format, against float64."""
    name, figures, seen = f"{str(dtype).removeprefix('torch.')}{by}", {}, []
    finite(f"outputs and gradients in {name}", *results.values())
    exact = copy.deepcopy(mixer).double()
    reference = _real_results(exact, x.double(), keep)
    for weight in exact.parameters():
        weight.data = _rounded(weight.data, dtype)
    moved = _real_results(exact, _rounded(x, dtype), keep)
    for key in ("output", "gradient"):
        drift, sensitivity = (_distance(one[key].double(), reference[key]) for one in (results, moved))
        allowed = OWN_ROUNDINGS[dtype] * torch.finfo(dtype).eps + TIMES_SENSITIVITY * sensitivity
        figures |= {f"{key}_drift": drift, f"{key}_sensitivity": sensitivity, f"{key}_allowed": allowed}
        seen.append(f"{key} {drift:.1e}, allowed {allowed:.1e}")
        if drift > allowed:
            raise CheckFailed(
                f"{key} in {name} drifts from float64 by {drift:.1e} (rms), allowed {allowed:.1e}: rounded inputs "
                f"alone move it by {sensitivity:.1e}"
            )
    return Finding("; ".join(seen), figures)


def _distance(got: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, relative to that of what is expected."""
    if torch.equal(got, expected):
        return 0.0
    return ((got - expected).square().mean() / expected.square().mean()).sqrt().item()


def _float32_case(subject: CheckSubject) -> tuple[TokenMixer, Tensor, Tensor]:
    """A mixer in float32, its tokens (B, L, D) and mask (B, L)."""
    length = subject.at_most(LONG)
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32) + OFFSET
    return mixer, x, padded(length, (length, max(1, length - 37)))


def _real_results(mixer: TokenMixer, x: Tensor, keep: Tensor, *, autocast: bool = False) -> _Results:
    """Outputs at real tokens, and gradients of their weighted sum by the tokens."""
    x = x.detach().clone().requires_grad_()
    result = call(mixer, x, keep, autocast=autocast)
    grad = gradients(total(result, keep), {"tokens": x})["tokens"]
    return {"output": result.out.detach()[keep], "gradient": grad[keep]}


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers rounded to a format, in float64; float32 ones, which have that precision, moved by up to one rounding."""
    if dtype != torch.float32:
        return x.to(dtype).double()
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 0.5
    return x.float().double() * (1 + noise * torch.finfo(dtype).eps)


def _choices(subject: CheckSubject) -> dict[str, dict[str, str]]:
    """What to force, by its name in words: each implementation the device may run, the reference only off the CPU.

    On another device than the CPU the mixer as it is, too.
    """
    kind = torch.device(subject.device).type
    with using() as used:
        call(subject.build(), subject.pair(LENGTH)[0])
    found = {
        f"{name} {one.name}": {name: one.name}
        for name in used
        for one in OPERATIONS[name].implementations
        if (one.name != REFERENCE or subject.device != "cpu") and kind in (one.devices or (kind,))
    }
    return found if subject.device == "cpu" else {f"the mixer on {subject.device}": {}, **found}


@shows(
    "every implementation of its operations on the device gives what the reference gives",
    excluded=lambda subject: "" if _choices(subject) else "has no operation with several implementations",
)
def _kernels(subject: CheckSubject) -> Finding:
    """Odd lengths and masks in float64; float32 and bf16 at one length, as far as an implementation takes them."""
    meter, seen = Meter(ROUNDING), []
    for label, forced in _choices(subject).items():
        lengths = [(n, real) for n in dict.fromkeys(map(subject.at_most, KERNEL_LENGTHS)) for real in {n, (n + 1) // 2}]
        agreed = [_agree(subject, forced, label, meter, *one) for one in lengths]
        ran = ["float64"] if any(agreed) else []
        for dtype in (torch.float32, torch.bfloat16):
            ran += [str(dtype).removeprefix("torch.")] * _stays_near(subject, forced, label, dtype)
        seen.append(f"{label}: {', '.join(ran) or 'takes no tensors of these lengths and formats'}")
    return meter.finding("; ".join(seen))


def _agree(subject: CheckSubject, forced: Mapping[str, str], label: str, meter: Meter, length: int, real: int) -> bool:
    """In float64, of outputs, losses and all gradients; False where the implementation takes no such tensors."""
    mixer, x = subject.build(max_len=max(KERNEL_LENGTHS)), subject.tokens(2, length)
    keep = padded(length, (length, real))
    with using(REFERENCE):
        expected = _values_and_gradients(mixer, x, keep)
    try:
        with using(forced):
            got = _values_and_gradients(*_moved(subject, mixer, x, keep))
    except ConfigError:
        return False
    for mine, wanted in zip(got, expected, strict=True):
        meter.compare_all({name: one.cpu() for name, one in mine.items()}, wanted, f" by {label} at length {length}")
    return True


def _stays_near(subject: CheckSubject, forced: Mapping[str, str], label: str, dtype: torch.dtype) -> bool:
    """As the checks of precision; False where the implementation takes no such tensors."""
    mixer, x, keep = _float32_case(subject)
    try:
        with using(forced):
            found = _real_results(*_moved(subject, mixer, x, keep), autocast=dtype != torch.float32)
    except ConfigError:
        return False
    with using(REFERENCE):
        _judge_drift(mixer, x, keep, dtype, {name: one.cpu() for name, one in found.items()}, f" by {label}")
    return True


def _moved(subject: CheckSubject, mixer: TokenMixer, x: Tensor, keep: Tensor) -> tuple[TokenMixer, Tensor, Tensor]:
    return copy.deepcopy(mixer).to(subject.device), x.to(subject.device), keep.to(subject.device)
