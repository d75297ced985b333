"""Counts what a pass costs: FLOPs, and bytes read and written, operation by operation.

Counted where torch dispatches to a kernel, so autograd's backward pass and custom autograd functions are seen. Bytes
are what each operation has to touch: its inputs once, its outputs once, a broadcast dimension not at all; a fused
kernel's inner results do not appear. Reading a number with `.item()` is free. Functions compiled with torch.compile run
as they were written: Dynamo steps aside under a dispatch mode.

Not seen: what leaves torch (numpy, ctypes, Python lists of numbers). That is noticed, named and never called proven.
Letters: B batch, L length, D model width.
"""

from __future__ import annotations

import functools
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.cost.operations import Rule, rule_of, tensors_in
from subquad.nn import MixerOutput, as_output

SMALL = 64
"""A tensor of so few numbers may be handed to Python: a length, a step size, one number a sample or head."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """The cost of one pass.

    Attributes:
        flops: floating-point operations.
        moved: bytes read and written.
        operations: how many there were, views left out.
        largest: elements of the largest tensor that each operation made, by the operation's name.
        unknown: what could not be counted, by name.
    """

    flops: int
    moved: int
    operations: int
    largest: dict[str, int]
    unknown: tuple[str, ...]

    @property
    def peak(self) -> int:
        """Elements of the largest tensor that was made."""
        return max(self.largest.values(), default=0)

    def __add__(self, other: Count) -> Count:
        names = {**self.largest, **other.largest}
        return Count(
            flops=self.flops + other.flops,
            moved=self.moved + other.moved,
            operations=self.operations + other.operations,
            largest={name: max(self.largest.get(name, 0), other.largest.get(name, 0)) for name in names},
            unknown=tuple(sorted({*self.unknown, *other.unknown})),
        )


def count_pass(mixer: nn.Module, x: Tensor, *, keep: Tensor | None = None, backward: bool = True) -> Count:
    """Count one call of a mixer, with its backward pass to the input and all parameters.

    The gradient of every output, extra losses that carry a weight included, is 1. No `.grad` is touched.

    Args:
        x: (B, L, D).
        keep: (B, L) bool, True = real token.
        backward: whether to count it.
    """
    counter = OperationCounter()
    x = x.detach().requires_grad_(backward)
    with counter.counting(), torch.set_grad_enabled(backward):
        out = as_output(mixer(x, keep=keep))
    if backward:
        ends = [end for end in _ends(mixer, out) if end.requires_grad]
        wanted = [x, *(one for one in mixer.parameters() if one.requires_grad)]
        ones = [torch.ones_like(end) for end in ends]
        with counter.counting():
            torch.autograd.grad(ends, wanted, ones, allow_unused=True)
    return counter.count()


def _ends(mixer: nn.Module, out: MixerOutput) -> list[Tensor]:
    weights = getattr(mixer, "loss_weights", {})
    return [out.out, *(loss for name, loss in out.losses.items() if weights.get(name, 0.0))]


class OperationCounter:
    """Adds up what runs inside `counting()`.

    Attributes:
        unknown: names of what could not be counted.
    """

    def __init__(self) -> None:
        self._flops = self._moved = self._operations = 0
        self._largest: Tally[str] = Tally()
        self.unknown: set[str] = set()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs in here."""
        with _Leaving(self.unknown), _Dispatch(self):
            yield

    def add(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Count one operation that ran."""
        known = _known(func)
        name = func._schema.name
        if known is None:
            self.unknown.add(name)
        elif known.rule.traffic != "none":
            self._flops += known.rule.flops(args, out)
            self._moved += known.moved(args, kwargs, out)
        if known is None or known.rule.traffic != "none":
            self._operations += 1
            self._largest[name] = max([self._largest[name], *(one.numel() for one in tensors_in(out))])

    def count(self) -> Count:
        """What was seen so far."""
        return Count(
            flops=self._flops,
            moved=self._moved,
            operations=self._operations,
            largest=dict(self._largest),
            unknown=tuple(sorted(self.unknown)),
        )


@dataclass(frozen=True)
class _Known:
    """An operator's rule, and which of its arguments it changes."""

    rule: Rule
    changed: tuple[int, ...]

    def moved(self, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int:
        """Bytes read and written."""
        changed = [one for place in self.changed for one in tensors_in(args[place : place + 1])]
        given = [one for one in tensors_in(args) if not (self.rule.overwrites and _is_among(one, changed))]
        written = tensors_in(out) or changed or tensors_in(list(kwargs.values()))
        writes, reads = sum(map(_touched, written)), [_touched(one) for one in given]
        if self.rule.traffic == "gather" and reads:
            reads[0] = min(reads[0], writes)
        if self.rule.traffic == "scatter" and changed:
            scattered = max((_touched(one) for one in given if not _is_among(one, changed)), default=0)
            writes = reads[0] = min(reads[0], scattered)
        return writes + sum(reads)


@functools.cache
def _known(func: Any) -> _Known | None:
    rule = rule_of(func)
    changed = [place for place, one in enumerate(func._schema.arguments) if one.alias_info and one.alias_info.is_write]
    return None if rule is None else _Known(rule, tuple(changed))


def _touched(x: Tensor) -> int:
    """Bytes of a tensor's own elements: broadcast dimensions (stride 0) and overlaps are held once."""
    if x.layout != torch.strided:
        return x.numel() * x.element_size()
    own = x.element_size()
    for size, stride in zip(x.shape, x.stride(), strict=True):
        own *= size if stride or not size else 1
    return min(own, x.untyped_storage().nbytes())


def _is_among(x: Tensor, others: Sequence[Tensor]) -> bool:
    return any(x is one for one in others)


class _Dispatch(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter: OperationCounter):
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: what it runs inside is hidden
            self.counter.unknown.add(str(func))
            return func(*args, **kwargs)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self.counter.add(func, args, kwargs, out)
        return out


@functools.cache
def _is_composite(func: Any) -> bool:
    """Made of other operations, which are counted instead."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


class _Leaving(TorchFunctionMode):
    """Notes tensors that leave torch, where what is done with them cannot be counted."""

    names = ("numpy", "__array__", "__dlpack__", "tolist", "data_ptr")

    def __init__(self, seen: set[str]):
        super().__init__()
        self.seen = seen
        self.exits = {getattr(Tensor, name): name for name in self.names}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.exits and args[0].numel() > SMALL:
            self.seen.add(f"Tensor.{self.exits[func]}")
        return func(*args, **(kwargs or {}))
