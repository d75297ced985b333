"""Kernels: on the device every implementation of the mixer's operations gives what the reference
gives.

In float64 outputs and gradients agree but for rounding; in float32 and under bf16 autocast they
stay as near to float64 on the CPU as the check of precision allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from subquad.errors import ConfigError
from subquad.nn.kernels import OPERATIONS, REFERENCE, using, with_covered
from subquad_check.calls import Tensors, call, padded, values_and_gradients
from subquad_check.cases import compares
from subquad_check.checks.precision import Case, Exact, compare_drift, float32_case, real_results
from subquad_check.meter import Comparisons, each, word
from subquad_check.subject import CheckSubject

LENGTHS = (1, 7, 33, 127)


def _choices(subject: CheckSubject) -> dict[str, dict[str, str]]:
    """What to force, by its name in words: each implementation the device may run, the reference
    only off the CPU.

    On another device than the CPU the mixer as it is, too.
    """
    device = torch.device(subject.device).type
    on_cpu = subject.device == "cpu"
    with using() as used:
        call(subject.build(), *subject.pair(LENGTHS[2]))
    choices: dict[str, dict[str, str]] = {} if on_cpu else {f"the mixer on {subject.device}": {}}
    for name in with_covered(used):
        for implementation in OPERATIONS[name].implementations:
            if on_cpu and implementation.name == REFERENCE:
                continue
            if device in (implementation.devices or [device]):
                choices[f"{name} {implementation.name}"] = {name: implementation.name}
    return choices


@compares(
    "every implementation of its operations on the device gives what the reference gives",
    excluded=lambda subject: (
        "" if _choices(subject) else "has no operation with several implementations"
    ),
)
def _kernels(subject: CheckSubject) -> Comparisons:
    """Odd lengths and masks in float64; float32 and bf16 at one length, as far as an
    implementation takes them.
    """
    choices = _choices(subject)
    ran = {label: dict[str, None]() for label in choices}
    for length in subject.lengths(*LENGTHS):
        for real in {length, (length + 1) // 2}:
            case = partial(_case, subject, length, real)
            with using(REFERENCE):
                expected = values_and_gradients(*case())
            for label, forced in choices.items():
                results = _forced(values_and_gradients, subject, forced, case())
                if results is None:
                    continue
                ran[label]["float64"] = None
                yield from each(_on_cpu(results), expected, f" by {label} at length {length}")
    exact = Exact(subject, float32_case(subject))
    for label, forced in choices.items():
        for dtype in (torch.float32, torch.bfloat16):
            case = float32_case(subject)
            results = _forced(real_results, subject, forced, case, autocast=dtype != torch.float32)
            if results is None:
                continue
            ran[label][word(dtype)] = None
            with using(REFERENCE):
                compare_drift(exact, dtype, _on_cpu(results), f" by {label}")
    nothing = "takes no tensors of these lengths and formats"
    return "; ".join(f"{label}: {', '.join(formats) or nothing}" for label, formats in ran.items())


def _case(subject: CheckSubject, length: int, real: int) -> Case:
    mixer = subject.build(max_len=max(LENGTHS))
    return mixer, subject.tokens(2, length), padded(length, (length, real))


def _forced(
    compute: Callable[..., Any],
    subject: CheckSubject,
    forced: Mapping[str, str],
    case: Case,
    **options: bool,
) -> Any:
    """What an implementation computes on the subject's device; None where it takes no such
    tensors.
    """
    with suppress(ConfigError), using(forced):
        return compute(*(part.to(subject.device) for part in case), **options)
    return None


def _on_cpu(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
