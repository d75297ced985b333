"""Kernels: one function with a readable reference and faster implementations, chosen by device and
number format.

    FILTER = Operation("agf.filter", reference=plain_filter)

    @FILTER.implementation("triton", devices=("cuda",), dtypes=(torch.float32, torch.bfloat16))
    def triton_filter(vectors, logits, coefficients): ...

    FILTER(vectors, logits, coefficients)

A call takes the first implementation, in the order they were added, that runs on its tensors, and
the reference where none does. Where one that is made for the device does not take them, that is
logged once. `train.kernels` forces one, result.json records which ran, and `subquad check` holds
each against the reference. An implementation is differentiable, and returns what the reference
returns, but for rounding. One that is added with `chosen=False` runs only where it is forced: the
usual way to compute the operation, to be timed beside the others.
"""

from __future__ import annotations

import logging
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
        by_values: what it costs depends on numbers in its tensors, such as a mask; not chosen where
            costs are counted.
        covers: operations within this one that it does without. It does not run where one of them
            is forced.
    """

    name: str
    function: Callable[..., Any]
    devices: tuple[str, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    when: Callable[..., bool] | None = None
    by_values: bool = False
    covers: tuple[str, ...] = ()

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Whether it computes the operation of these arguments, the first of which is a tensor."""
        first = args[0]
        return (
            not (self.by_values and _counted)
            and (not self.devices or first.device.type in self.devices)
            and (not self.dtypes or first.dtype in self.dtypes)
            and not any(name in _forced for name in self.covers)
            and (self.when is None or self.when(*args, **kwargs))
        )


@dataclass(frozen=True, eq=False)
class Operation:
    """A function with several implementations. Call it as the reference is called.

    Args:
        name: of the operation, once in a process, such as "agf.filter".
        reference: the readable form in plain torch, first argument a tensor; runs everywhere.

    Attributes:
        implementations: in order of preference, the reference, those that are never chosen.
    """

    name: str
    reference: Callable[..., Any]
    implementations: list[_Implementation] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.implementations.append(_Implementation(name=REFERENCE, function=self.reference))
        OPERATIONS[self.name] = self

    def implementation(
        self, name: str, *, chosen: bool = True, **limits: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds the decorated function.

        Args:
            name: as settings and results name it.
            chosen: whether it may run without being forced.
            limits: `_Implementation`'s devices, dtypes, when, by_values and covers.
        """

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            # What stands behind the reference is never reached, as the reference takes everything.
            names = [implementation.name for implementation in self.implementations]
            place = names.index(REFERENCE) if chosen else len(names)
            self.implementations.insert(
                place, _Implementation(name=name, function=function, **limits)
            )
            return function

        return add

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the chosen implementation returns.

        Raises:
            ConfigError: the forced implementation does not take these arguments.
        """
        if _calls is not None:
            _calls.append((self, args, kwargs))
        wanted = _forced if isinstance(_forced, str) else _forced.get(self.name, "")
        first = args[0]
        missed = ""
        for implementation in self.implementations:
            if wanted not in ("", implementation.name):
                continue
            if implementation.takes(*args, **kwargs):
                _note(self.name, implementation.name, missed)
                return implementation.function(*args, **kwargs)
            if first.device.type in implementation.devices:
                missed = (
                    f"{implementation.name} does not take these "
                    f"arguments ({first.dtype} on {first.device.type})"
                )
        raise ConfigError(
            f"train.kernels.{self.name}: {wanted} cannot run here: "
            f"{tuple(first.shape)} {first.dtype} on {first.device}"
        )


OPERATIONS: dict[str, Operation] = {}
"""Every operation of the modules that were imported, by name."""

_forced: Kernels = ""
_used: dict[str, str] = {}
_calls: list[tuple[Operation, tuple[Any, ...], dict[str, Any]]] | None = None

_counted = False

_warned: set[str] = set()


def _note(operation: str, implementation: str, missed: str) -> None:
    message = f"{operation}: {missed}, {implementation} runs"
    if missed and message not in _warned:
        _warned.add(message)
        logging.getLogger(__name__).warning(message)
    ran = _used.get(operation, "")
    if implementation not in ran.split(", "):
        if ran:
            _used[operation] = f"{ran}, {implementation}"
        else:
            _used[operation] = implementation


# Runs while a graph is traced, so compiled models are recorded too. This is all that
# `assume_constant_result` does, which would first import the compiler.
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
        # a graph compiled before has chosen already, and would not be recorded
        torch.compiler.reset()
    _forced = forced
    _used = {}
    try:
        yield _used
    finally:
        _forced, _used = before


@contextmanager
def counted() -> Iterator[None]:
    """Choose no implementation in here whose cost depends on numbers in its tensors."""
    global _counted
    before = _counted
    _counted = True
    try:
        yield
    finally:
        _counted = before


@contextmanager
def recording() -> Iterator[list[tuple[Operation, tuple[Any, ...], dict[str, Any]]]]:
    """Collect every call of an operation: the operation, and the arguments as they were given.

    Yields:
        the calls, filled as they happen.
    """
    global _calls
    before = _calls
    _calls = []
    try:
        yield _calls
    finally:
        _calls = before


def with_covered(operations: Collection[str]) -> list[str]:
    """Operations by name, and those that may run within them."""
    covered = [
        name
        for known in operations
        for implementation in OPERATIONS[known].implementations
        for name in implementation.covers
    ]
    return list(dict.fromkeys([*operations, *covered]))


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
            raise ConfigError(
                f"train.kernels: got {forced!r}, must be {REFERENCE!r} or "
                "implementations by operation"
            )
        return
    known = with_covered(known) or OPERATIONS
    for name, wanted in forced.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigError(
                f"train.kernels: no operation {name!r} in this "
                f"model{did_you_mean(name, known)}; operations: {listed}"
            )
        offered = {
            implementation.name: implementation
            for implementation in OPERATIONS[name].implementations
        }
        if wanted not in offered:
            raise ConfigError(
                f"train.kernels.{name}: no implementation "
                f"{wanted!r}{did_you_mean(wanted, offered)}; "
                f"implementations: {', '.join(offered)}"
            )
        if (devices := offered[wanted].devices) and device not in devices:
            raise ConfigError(
                f"train.kernels.{name}: {wanted} runs on {', '.join(devices)}, this run on {device}"
            )
