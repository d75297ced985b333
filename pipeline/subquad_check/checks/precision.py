"""Formats: float32 and bf16 stay near float64.

A method may amplify rounding by nature (a pseudo-inverse does). So the drift from float64 that is
allowed is some rounding errors of the format plus a multiple of the sensitivity: how much float64
outputs move when tokens and weights are rounded to it. Drift and sensitivity are root mean squares,
relative to that of the float64 result.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import TokenMixer
from subquad.registry.faults import cause
from subquad_check.calls import (
    Intercepting,
    NoDropout,
    Tensors,
    afresh,
    call,
    cast,
    decoded,
    draws,
    gradients,
    padded,
    settled_modes,
    tensors_of,
    total,
    trainable,
)
from subquad_check.cases import shows
from subquad_check.meter import (
    HALF,
    CheckFailed,
    Finding,
    NotApplicable,
    NotTested,
    finite,
    word,
)
from subquad_check.subject import CheckSubject

LENGTH, LONG = 33, 512
DECODED = 200
"""The last tokens, by steps: bf16 counts to 256."""
AT_END, END = "output at the end", 64
"""Of the last tokens, where a sum in bf16 no longer grows."""
OWN_ROUNDINGS = {torch.float32: 64, torch.bfloat16: 4}
TIMES_SENSITIVITY = 4
ROUNDINGS = 12
"""So many are tried before a drift counts, and the largest sensitivity holds: where a method
chooses (a bucket, the largest k), one rounding may turn no choice.
"""
OFFSET = 0.5
"""Mean of the tokens: sums over them then grow with the length, as they do on data."""
LARGER = 1.5
"""What is added to it where a sum in bf16 stops growing before the end."""
FAR_OFF = 100.0
"""A mean beside which differences between tokens are small."""
LOUD = 30.0

Case = tuple[TokenMixer, Tensor, Tensor]
"""A mixer, tokens (B, L, D) and mask (B, L)."""


class Exact:
    """What a float32 mixer gives in float64, if it runs there, and how far rounded inputs move
    that. Each is computed when it is asked for, and once: several implementations are held against
    it. The mixer is in that format from then on, with whatever tables it has made in float32.
    """

    def __init__(self, subject: CheckSubject, case: Case):
        self._mixer, x, self._keep = case
        self.dtype = subject.dtypes[0]
        cast(self._mixer, self.dtype)
        self._x = x.to(self.dtype)
        self.moves = cache(self._moves)

    @cached_property
    def results(self) -> Tensors:
        """See `real_results`."""
        return real_results(self._mixer, self._x, self._keep)

    def _moves(self, dtype: torch.dtype, seed: int) -> dict[str, float]:
        """How far one way of rounding moves each result."""
        exact = {weight: weight.data for weight in trainable(self._mixer).values()}
        for weight, numbers in exact.items():
            weight.data = _rounded(numbers, dtype, seed)
        try:
            return self.distances(
                real_results(self._mixer, _rounded(self._x, dtype, seed), self._keep)
            )
        finally:
            for weight, numbers in exact.items():
                weight.data = numbers

    def distances(self, results: Mapping[str, Tensor]) -> dict[str, float]:
        """How far each of other results is from these: the root mean square of the difference,
        relative to that of what is expected.
        """
        found = dict.fromkeys(results, 0.0)
        for key, got in results.items():
            expected = self.results[key]
            apart = got.to(expected.dtype) - expected
            if apart.any():
                found[key] = (apart.square().mean() / expected.square().mean()).sqrt().item()
        return found


@shows("float32 stays as near to float64 as the method allows")
def _precision_fp32(subject: CheckSubject) -> Finding:
    """Also of tokens with a large mean; and no number is rounded to 16 bits."""
    if subject.is_single_alone:
        raise NotApplicable("runs in float32 alone: nothing more exact to hold it against")
    case = mixer, x, keep = float32_case(subject)
    results = real_results(*case)
    far = x[:, :LENGTH] + FAR_OFF, keep[:, :LENGTH]
    shifted = real_results(mixer, *far)
    del shifted["gradient"]  # a softmax with one large weight rounds it away
    with Intercepting(_unrounded):
        unrounded = real_results(*case)
    exact = Exact(subject, case)
    finding = compare_drift(exact, torch.float32, results)  # of the mixer after its call
    compare_drift(exact, torch.float32, unrounded, " without its roundings to 16 bits")
    most = FAR_OFF * exact.results["output"].square().mean()
    exact = Exact(subject, (mixer, *far))
    # what does not take the mean away has large numbers, and may round them, or overflow
    if exact.results["output"].square().mean() < most:
        compare_drift(exact, torch.float32, shifted, f", tokens with a mean of {FAR_OFF:g}")
    return finding


def _unrounded(result: Any, args: Any) -> Any:
    """What was cast to 16 bits, as it was."""
    is_half = isinstance(result, Tensor) and result.dtype in HALF
    for given in tensors_of(args)[:1]:
        if is_half and given.dtype not in HALF and given.shape == result.shape:
            return given
    return result


@shows("bf16 autocast stays near float64 and overflows nowhere")
def _precision_bf16(subject: CheckSubject) -> Finding:
    """The same numbers through bf16 autocast, as the engine runs it; nothing overflows, also
    with loud tokens.
    """
    case = mixer, x, keep = float32_case(subject)
    try:
        results = real_results(*case, autocast=True)
    except Exception as error:
        if _is_torchs(error) or "Batching rule not implemented" in str(error):
            raise NotApplicable(f"not tested: torch cannot here: {cause(error)}") from error
        raise
    loud = real_results(mixer, LOUD * x, keep, autocast=True)
    dtype = results["output"].dtype
    if dtype not in (torch.bfloat16, torch.float32):
        raise CheckFailed(f"output under bf16 autocast is {dtype}, expected bfloat16 or float32")
    finite(
        f"outputs and gradients under bf16 autocast, tokens {LOUD:g} times as large", *loud.values()
    )
    larger = mixer, x + LARGER, keep
    ends = real_results(*larger, autocast=True)
    finding = compare_drift(Exact(subject, case), torch.bfloat16, results)
    ends = {key: found for key, found in ends.items() if AT_END in key}
    compare_drift(Exact(subject, larger), torch.bfloat16, ends, f", tokens {LARGER:g} larger")
    return finding


def _is_torchs(error: BaseException) -> bool:
    """Whether one of torch's own layers fails, with numbers and weights as autocast gives them."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    layer = frame.f_locals.get("self")
    if not isinstance(layer, nn.Module) or not type(layer).__module__.startswith("torch.nn."):
        return False
    given = tensors_of([*frame.f_locals.values(), *layer.parameters()])
    floating = {tensor.dtype for tensor in given if tensor.is_floating_point()}
    return floating <= {torch.float32, torch.bfloat16}


def compare_drift(exact: Exact, dtype: torch.dtype, results: Tensors, by: str = "") -> Finding:
    """Hold `real_results` of a float32 mixer, computed in a format, against float64.

    Args:
        by: what is special about them; inputs are rounded for these only where they are not near
            enough without.
    """
    name = f"{word(dtype)}{by}"
    finite(f"outputs and gradients in {name}", *results.values())
    drift = exact.distances(results)
    own = OWN_ROUNDINGS[dtype] * torch.finfo(dtype).eps
    sensitivity = dict.fromkeys(drift, 0.0)
    allowed = dict.fromkeys(drift, own)
    for seed in range(ROUNDINGS):
        if (by or seed) and all(apart <= allowed[key] for key, apart in drift.items()):
            break
        moves = exact.moves(dtype, seed)
        for key in drift:
            sensitivity[key] = max(sensitivity[key], moves[key])
            allowed[key] = own + TIMES_SENSITIVITY * sensitivity[key]
    beyond = {
        key: apart / allowed[key] for key, apart in drift.items() if not apart <= allowed[key]
    }
    if beyond:
        worst = max(beyond, key=beyond.__getitem__)
        raise CheckFailed(
            f"{worst} in {name} drifts from float64 by {drift[worst]:.1e} (rms), allowed "
            f"{allowed[worst]:.1e}: rounded inputs alone move it by {sensitivity[worst]:.1e}"
        )
    told = {"drift": drift, "sensitivity": sensitivity, "allowed": allowed}
    figures = {f"{key}_{what}": found[key] for what, found in told.items() for key in drift}
    parts = [f"{key} {apart:.1e}, allowed {allowed[key]:.1e}" for key, apart in drift.items()]
    return Finding("; ".join(parts), figures)


def float32_case(subject: CheckSubject) -> Case:
    """A mixer in float32, in training where it draws nothing random there; its tokens (B, L, D)
    and mask (B, L).
    """
    length = subject.at_most(LONG)
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32) + OFFSET
    few = x[:, :LENGTH]
    if draws(mixer, few):
        raise NotTested(
            "not tested, because it draws random numbers in evaluation (determinism), others in "
            "each format"
        )
    mixer.train("training" in settled_modes(mixer, few))
    return mixer, x, padded(length, (length, max(1, length - 37)))


def real_results(mixer: TokenMixer, x: Tensor, keep: Tensor, *, autocast: bool = False) -> Tensors:
    """Outputs at real tokens, also in evaluation and of the last tokens by steps (of half of them
    where there are few), and gradients of their weighted sum by the tokens.
    """
    tokens = x.detach().clone().requires_grad_()
    with NoDropout():  # a checkpoint calls it once more for the gradient
        result = call(afresh(mixer), tokens, keep, autocast=autocast)
        grad = gradients(total(result, keep), {"tokens": tokens})["gradient by tokens"]
    out = result.out.detach()
    found = {"output": out[keep], "gradient": grad[keep], AT_END: out[:1, -END:]}
    is_training = mixer.training
    mixer.eval()
    if is_training:
        with torch.no_grad():
            found["output in evaluation"] = call(mixer, x, keep, autocast=autocast).out[keep]
    if mixer.caches:
        length = x.shape[1]
        start = length - min(DECODED, length // 2)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            steps = decoded(mixer, x.detach(), start)[:, start - 1 :]
        found |= {"output of steps": steps, f"{AT_END} of steps": steps[:, -END:]}
    mixer.train(is_training)
    return found


def _rounded(x: Tensor, dtype: torch.dtype, seed: int) -> Tensor:
    """Numbers rounded to a format, in their own; with a seed they are first moved by up to half a
    rounding. float32 ones, which have that precision, are moved alone.
    """
    if x.is_complex():
        return torch.view_as_complex(_rounded(torch.view_as_real(x), dtype, seed))
    if dtype != torch.float32 and not seed:
        return x.to(dtype).to(x.dtype)
    uniform = torch.rand(
        x.shape, generator=torch.Generator().manual_seed(2 + seed), dtype=torch.float64
    )
    moved = x.double() * (1 + (uniform - 0.5) * torch.finfo(dtype).eps)
    return moved.to(x.dtype if dtype == torch.float32 else dtype).to(x.dtype)
