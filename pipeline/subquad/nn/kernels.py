"""Kernels: one function with a readable reference and faster implementations, chosen by device and number format.

    FILTER = Operation("agf.filter", reference=plain_filter)

    @FILTER.implementation("triton", devices=("cuda",), dtypes=(torch.float32, torch.bfloat16))
    def triton_filter(vectors, logits, coefficients): ...

    FILTER(vectors, logits, coefficients)

A call takes the first implementation, in the order they were added, that runs on its tensors, and the reference where
none does. `train.kernels` forces one, result.json records which ran, and `subquad check` holds each against the
reference. An implementation is differentiable, and returns what the reference returns, but for rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from subquad.errors import ConfigError
from subquad.suggest import did_you_mean

REFERENCE = "reference"

Kernels = str | Mapping[str, str]
"""Implementations that are forced, by operation, or `REFERENCE` for all operations."""


@dataclass(frozen=True, kw_only=True)
class _Implementation:
    """One way to compute an operation.

    Attributes:
        name: as settings and results name it.
        function: takes and returns what the reference does.
        devices: types of device it runs on ("cuda", "cpu", ...); empty: any.
        dtypes: of the first tensor; empty: any.
        when: whether it takes these arguments, such as shapes that fit; None: always.
    """

    name: str
    function: Callable[..., Any]
    devices: tuple[str, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    when: Callable[..., bool] | None = None

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Whether it computes the operation of these arguments, the first of which is a tensor."""
        first = args[0]
        return (
            (not self.devices or first.device.type in self.devices)
            and (not self.dtypes or first.dtype in self.dtypes)
            and (self.when is None or self.when(*args, **kwargs))
        )


@dataclass(frozen=True, eq=False)
class Operation:
    """A function with several implementations. Call it as the reference is called.

    Args:
        name: of the operation, once in a process, such as "agf.filter".
        reference: the readable form in plain torch, first argument a tensor; runs everywhere.

    Attributes:
        implementations: in order of preference, the reference last.
    """

    name: str
    reference: Callable[..., Any]
    implementations: list[_Implementation] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.implementations.append(_Implementation(name=REFERENCE, function=self.reference))
        OPERATIONS[self.name] = self

    def implementation(self, name: str, **limits: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds the decorated function; `limits` are `_Implementation`'s devices, dtypes and when."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.implementations.insert(-1, _Implementation(name=name, function=function, **limits))
            return function

        return add

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the chosen implementation returns.

        Raises:
            ConfigError: the forced implementation does not take these arguments.
        """
        wanted = _forced if isinstance(_forced, str) else _forced.get(self.name, "")
        for one in self.implementations:
            if wanted in ("", one.name) and one.takes(*args, **kwargs):
                _note(self.name, one.name)
                return one.function(*args, **kwargs)
        first = args[0]
        raise ConfigError(
            f"train.kernels.{self.name}: {wanted} cannot run here: {tuple(first.shape)} {first.dtype} on {first.device}"
        )


OPERATIONS: dict[str, Operation] = {}
"""Every operation of the modules that were imported, by name."""

_forced: Kernels = ""
_used: dict[str, str] = {}


def _note(operation: str, implementation: str) -> None:
    seen = _used.get(operation, "")
    if implementation not in seen.split(", "):
        _used[operation] = f"{seen}, {implementation}" if seen else implementation


# Runs while a graph is traced, so compiled models are recorded too. This is all that `assume_constant_result` does,
# which would first import the compiler.
_note._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


@contextmanager
def using(forced: Kernels = "") -> Iterator[dict[str, str]]:
    """Force implementations, and collect which ones run in here.

    Yields:
        implementation by operation, filled as they run; several are joined by ", ".
    """
    global _forced, _used
    before = _forced, _used
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # a graph compiled before has chosen already, and would not be recorded
    _forced, _used = forced, {}
    try:
        yield _used
    finally:
        _forced, _used = before


def check_kernels(forced: Kernels, device: str, known: Collection[str]) -> None:
    """Refuse forced implementations that cannot take effect.

    Args:
        device: type of the device that the model runs on.
        known: names of the model's operations; empty: not known, any that was imported.

    Raises:
        ConfigError: with the nearest name.
    """
    if isinstance(forced, str):
        if forced not in ("", REFERENCE):
            raise ConfigError(f"train.kernels: got {forced!r}, must be {REFERENCE!r} or implementations by operation")
        return
    known = known or OPERATIONS
    for name, wanted in forced.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigError(
                f"train.kernels: no operation {name!r} in this model{did_you_mean(name, known)}; operations: {listed}"
            )
        offered = {one.name: one for one in OPERATIONS[name].implementations}
        if wanted not in offered:
            raise ConfigError(
                f"train.kernels.{name}: no implementation {wanted!r}{did_you_mean(wanted, offered)}; "
                f"implementations: {', '.join(offered)}"
            )
        if (devices := offered[wanted].devices) and device not in devices:
            raise ConfigError(f"train.kernels.{name}: {wanted} runs on {', '.join(devices)}, this run on {device}")
