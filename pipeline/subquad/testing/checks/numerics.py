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
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from subquad.errors import ConfigError
from subquad.nn import AttentionMixer, TokenMixer
from subquad.nn.kernels import OPERATIONS, REFERENCE, using, with_covered
from subquad.registry import build_class
from subquad.testing.check import ROUNDING, CheckFailed, Finding, Meter, finite, shows
from subquad.testing.subject import (
    FAR,
    MAX_LEN,
    MODES,
    CheckSubject,
    afresh,
    call,
    gradients,
    outputs,
    padded,
    settled_modes,
    total,
    trainable,
)

LENGTH, GRADCHECK_LENGTH, LONG = 33, 5, 512
ABSOLUTE, RELATIVE, STEP = 1e-6, 1e-4, 1e-6
OWN_ROUNDINGS = {torch.float32: 64, torch.bfloat16: 4}
TIMES_SENSITIVITY = 4
OFFSET = 0.5
"""Mean of the tokens: sums over them then grow with the length, as they do on data."""
LOUD = 30.0
KERNEL_LENGTHS = (1, 7, 33, 127)
COMPILED = 0.5
"""Share of a mixer's operations that have to be in compiled graphs, of two operations or more."""

_NOT_THAT = f"is not that of finite differences, allowed {RELATIVE:g} relative, {ABSOLUTE:g} absolute"

_Results = dict[str, Tensor]


@shows("gradients equal finite differences")
def _gradients(subject: CheckSubject) -> Finding:
    """Outputs at real tokens and extra losses, by tokens and by weights, with padding; in training where it can be."""
    mixer, (tokens, keep) = subject.build(), subject.pair(GRADCHECK_LENGTH)
    *_, mode = settled_modes(mixer, tokens)
    mixer.train(MODES[mode])
    named = {name: weight.detach().clone() for name, weight in trainable(mixer).items()}
    inputs = [one.requires_grad_() for one in (tokens, *named.values())]

    def values(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        changed = dict(zip(named, given, strict=True))
        result = call(afresh(mixer, changed), x, keep, dropout=False)
        return tuple(one for one in (result.out[keep], *result.losses.values()) if one.requires_grad)

    if not values(*inputs):
        return Finding("nothing to differentiate: outputs are constant")
    count = _compare_jacobian(mixer, tokens[1:].detach(), keep[1:])
    _gradcheck(values, inputs, ("the tokens", *named))
    return Finding(
        f"in {mode}, {count} inputs one by one, {len(named)} weights along a direction", {"allowed": RELATIVE}
    )


def _compare_jacobian(mixer: TokenMixer, x: Tensor, keep: Tensor) -> int:
    """Derivatives of all that one sample (1, L, D) returns by its tokens; each is taken in a sample of its own.

    Returns:
        how many tokens' numbers there are.
    """

    def values(x: Tensor) -> Tensor:
        result = call(afresh(mixer), x, keep.expand(len(x), -1), dropout=False)
        return torch.cat([result.out[:, keep[0]].flatten(1), *(one[:, None] for one in result.losses.values())], 1)

    steps = STEP * torch.eye(x.numel(), dtype=x.dtype).view(-1, *x.shape[1:])
    with torch.no_grad():
        expected = (values(x + steps) - values(x - steps)) / (2 * STEP)
    copies = x.repeat(expected.shape[1], 1, 1).requires_grad_()
    got = gradients(values(copies).diagonal().sum(), {"tokens": copies})["tokens"].flatten(1).T
    if not torch.allclose(got, expected, RELATIVE, ABSOLUTE):
        raise CheckFailed(f"gradient of the outputs and losses by the tokens {_NOT_THAT}")
    return x.numel()


def _gradcheck(function: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], names: tuple[str, ...]) -> None:
    """torch's gradcheck along a random direction; its message comes without matrices, and with names for numbers."""
    check = partial(torch.autograd.gradcheck, eps=STEP, atol=ABSOLUTE, rtol=RELATIVE, check_undefined_grad=False)
    try:
        check(function, inputs, fast_mode=True)
    except GradcheckError as error:
        found = re.search(r"output (\d+) with respect to input (\d+)", str(error))
        if not found:
            raise CheckFailed(" ".join(str(error).split())[:300]) from None
        output = "outputs" if found[1] == "0" else f"extra loss {found[1]}"
        raise CheckFailed(f"gradient of the {output} by {names[int(found[2])]} {_NOT_THAT}") from None


@shows("calls in evaluation are equal and draw nothing random")
def _determinism_eval(subject: CheckSubject) -> Finding:
    """Two calls in evaluation, from different states of the random generator, which they leave as it was."""
    meter = Meter(0.0)
    for length in dict.fromkeys(map(subject.at_most, (LENGTH, FAR))):
        mixer, (x, keep) = subject.build(max_len=max(length, MAX_LEN)), subject.pair(length)
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
    """Mixers built alike, in training mode with equal seeds: outputs, extra losses and gradients, several times."""
    meter = Meter(0.0)
    for length, times in {subject.at_most(LENGTH): 4, subject.at_most(FAR): 2}.items():
        x, keep = subject.pair(length)
        built = [subject.build(max_len=max(length, MAX_LEN)).train() for _ in range(times)]
        first, *others = (_values_and_gradients(mixer, x, keep, seed=4) for mixer in built)
        for mine, wanted in ((mine, wanted) for other in others for mine, wanted in zip(other, first, strict=True)):
            for name in wanted:
                meter.compare(f"{name} of another mixer with equal seeds", mine[name], wanted[name])
    return meter.finding()


@shows("torch.compile gives the same outputs and gradients, and most of the mixer is compiled")
def _compiled(subject: CheckSubject) -> Finding:
    """Outputs, extra losses and gradients, with a mask; in training if nothing is drawn or kept there.

    torch's compiler takes gradients of a buffer that the same call changes from what it was changed to.
    """
    mixer, (x, keep), meter = subject.build(), subject.pair(13), Meter(ROUNDING)
    mixer.train("training" in settled_modes(mixer, x) and not subject.facts.stateful)
    expected = _values_and_gradients(copy.deepcopy(mixer), x, keep)
    with _Tracing(subject) as tracing:
        got = _values_and_gradients(torch.compile(copy.deepcopy(mixer), backend=tracing), x, keep)  # pyright: ignore
    for mine, wanted in zip(got, expected, strict=True):
        meter.compare_all(mine, wanted, f" compiled by {subject.compiler}")
    called = _count_calls(mixer, x, keep)
    if tracing.failure:
        raise CheckFailed(f"nothing was compiled: forward falls back to eager where it is traced: {tracing.failure}")
    if tracing.operations < COMPILED * called:
        raise CheckFailed(f"hardly anything was compiled: {tracing.operations} of {called} operations; {tracing}")
    return meter.finding(f"{subject.compiler}, {tracing}")


class _Tracing:
    """A backend of torch.compile that counts what reaches it. Inside, the compiler starts with an empty memory.

    Attributes:
        operations: of the mixer's own code, an attention core's without its projections; in graphs of two or more.
        failure: why the whole call fell back to eager; "" where it did not.
    """

    def __init__(self, subject: CheckSubject):
        from torch._dynamo import utils  # here: they take seconds to import
        from torch._dynamo.backends.registry import lookup_backend

        self.compile, self.known = lookup_backend(subject.compiler), utils
        self.own = inspect.unwrap(build_class(subject.resolved).forward).__code__.co_filename
        self.operations = self.graphs = self.breaks = self.fallbacks = 0
        self.failure = ""

    def __enter__(self) -> _Tracing:
        torch._dynamo.reset()
        self.known.counters.clear()
        self.known.clear_compilation_metrics()
        return self

    def __exit__(self, *error: object) -> None:
        first, frames = next(iter(self.known.get_compilation_metrics()), None), self.known.counters["frames"]
        self.failure = str(first.fail_reason).split("\n")[0] if first and first.fail_type else ""
        self.breaks, self.fallbacks = sum(self.known.counters["graph_break"].values()), frames["total"] - frames["ok"]
        torch._dynamo.reset()

    def __call__(self, graph: Any, inputs: Any) -> Any:
        nodes = [node for part in graph.modules() if isinstance(part, GraphModule) for node in part.graph.nodes]
        calls = [node for node in nodes if node.op in ("call_function", "call_method", "call_module")]
        self.graphs += 1
        if len(calls) > 1:  # one alone is as it was
            self.operations += sum(self.own in (node.stack_trace or self.own) for node in calls)
        return self.compile(graph, inputs)

    def __str__(self) -> str:
        counts = {"graph": self.graphs, "graph break": self.breaks, "fallback": self.fallbacks}
        return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


class _Calls(TorchFunctionMode):
    """Counts calls of torch that make tensors."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += any(isinstance(one, Tensor) for one in tree_leaves(result))
        return result


def _count_calls(mixer: TokenMixer, x: Tensor, keep: Tensor) -> int:
    """Of torch, in the mixer's own code."""
    calls, own = _Calls(), mixer.core if isinstance(mixer, AttentionMixer) else mixer
    hooks = (
        own.register_forward_pre_hook(lambda *_: calls.__enter__() and None),
        own.register_forward_hook(lambda *_: calls.__exit__(None, None, None)),
    )
    outputs(mixer, x, keep)
    for hook in hooks:
        hook.remove()
    return calls.count


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
    for key in results:
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
    """A mixer in float32, in training where it draws nothing random there; its tokens (B, L, D) and mask (B, L)."""
    length = subject.at_most(LONG)
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32) + OFFSET
    mixer.train("training" in settled_modes(mixer, x[:, :LENGTH]))
    return mixer, x, padded(length, (length, max(1, length - 37)))


def _real_results(mixer: TokenMixer, x: Tensor, keep: Tensor, *, autocast: bool = False) -> _Results:
    """Outputs at real tokens, also in evaluation, and gradients of their weighted sum by the tokens."""
    x = x.detach().clone().requires_grad_()
    result = call(afresh(mixer), x, keep, autocast=autocast, dropout=False)
    grad = gradients(total(result, keep), {"tokens": x})["tokens"]
    found = {"output": result.out.detach()[keep], "gradient": grad[keep]}
    if not mixer.training:
        return found
    with torch.no_grad():
        found["output in evaluation"] = call(mixer.eval(), x, keep, autocast=autocast).out[keep]
    mixer.train()
    return found


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
        call(subject.build(), *subject.pair(LENGTH))
    found = {
        f"{name} {one.name}": {name: one.name}
        for name in with_covered(used)
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
