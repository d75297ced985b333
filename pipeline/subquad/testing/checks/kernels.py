"""Kernels: on the device, every implementation of the mixer's operations against the reference.

In float64 outputs and gradients agree but for rounding; in float32 and under bf16 autocast they stay as near to float64
on the CPU as the check of precision allows.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from subquad.errors import ConfigError
from subquad.nn import TokenMixer
from subquad.nn.kernels import REFERENCE, operations, using
from subquad.testing.calls import autocast_call, call, padded, values_and_gradients
from subquad.testing.check import Finding, shows
from subquad.testing.checks.numerics import float32_case, judge_drift, real_results
from subquad.testing.measure import ROUNDING, Meter, compare_all
from subquad.testing.subject import CheckSubject

LENGTHS = (1, 7, 33, 127)


def _choices(subject: CheckSubject) -> dict[str, dict[str, str]]:
    """What to force, by its name in words: each implementation the device may run, the reference only off the CPU.

    On another device than the CPU the mixer as it is, too.
    """
    mixer, x, kind = subject.build(), subject.tokens(2, subject.at_most(33)), torch.device(subject.device).type
    with using() as used:
        call(mixer, x)
    found = {
        f"{name} {one.name}": {name: one.name}
        for name in used
        for one in operations()[name].implementations
        if (one.name != REFERENCE or subject.device != "cpu") and kind in (one.devices or (kind,))
    }
    return found if subject.device == "cpu" else {f"the mixer on {subject.device}": {}, **found}


def _no_operation(subject: CheckSubject) -> str:
    """Why no implementation is held against a reference."""
    return "" if _choices(subject) else "has no operation with several implementations"


@shows("every implementation of its operations on the device gives what the reference gives", excluded=_no_operation)
def _kernels(subject: CheckSubject) -> Finding:
    """Odd lengths and masks in float64; float32 and bf16 at one length, as far as an implementation takes them."""
    meter, seen = Meter(ROUNDING), []
    for label, forced in _choices(subject).items():
        lengths = [(n, real) for n in dict.fromkeys(map(subject.at_most, LENGTHS)) for real in {n, (n + 1) // 2}]
        agreed = [_agree(subject, forced, label, meter, *one) for one in lengths]
        ran = ["float64"] if any(agreed) else []
        for dtype in (torch.float32, torch.bfloat16):
            ran += [str(dtype).removeprefix("torch.")] * _stays_near(subject, forced, label, dtype)
        seen.append(f"{label}: {', '.join(ran) or 'takes no tensors of these lengths and formats'}")
    return meter.finding("; ".join(seen))


def _agree(subject: CheckSubject, forced: Mapping[str, str], label: str, meter: Meter, length: int, real: int) -> bool:
    """In float64, of outputs, losses and all gradients; False where the implementation takes no such tensors."""
    mixer, x, keep = subject.build(max_len=max(LENGTHS)), subject.tokens(2, length), padded(length, (length, real))
    with using(REFERENCE):
        expected = values_and_gradients(mixer, x, keep)
    try:
        with using(forced):
            got = values_and_gradients(*_moved(subject, mixer, x, keep))
    except ConfigError:
        return False
    for mine, wanted in zip(got, expected, strict=True):
        compare_all(meter, {name: one.cpu() for name, one in mine.items()}, wanted, f" by {label} at length {length}")
    return True


def _stays_near(subject: CheckSubject, forced: Mapping[str, str], label: str, dtype: torch.dtype) -> bool:
    """As the checks of precision; False where the implementation takes no such tensors."""
    mixer, x, keep = float32_case(subject)
    try:
        with using(forced):
            found = real_results(*_moved(subject, mixer, x, keep), call if dtype == torch.float32 else autocast_call)
    except ConfigError:
        return False
    with using(REFERENCE):
        judge_drift(mixer, x, keep, dtype, {name: one.cpu() for name, one in found.items()}, f" by {label}")
    return True


def _moved(subject: CheckSubject, mixer: TokenMixer, x: Tensor, keep: Tensor) -> tuple[TokenMixer, Tensor, Tensor]:
    return copy.deepcopy(mixer).to(subject.device), x.to(subject.device), keep.to(subject.device)
