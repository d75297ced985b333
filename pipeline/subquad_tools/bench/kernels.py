"""Speed of an operation's implementations as a ratio over its reference, on the arguments that a
mixer calls it with.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from subquad.nn.kernels import REFERENCE, Operation, recording, using
from subquad_tools.bench.clock import PARTS, Warm, one_thread, times_in_turn
from subquad_tools.bench.memory import memory_bounded
from subquad_tools.bench.mixers import lengths_of, roofline
from subquad_tools.bench.rows import (
    DTYPES,
    LeftOut,
    Measured,
    MixerChoice,
    SpeedSettings,
    torch_device,
)
from subquad_tools.bench.timed import (
    BASELINE,
    SAME,
    Timed,
    built_mixer,
    largest_gap,
    timed_core,
)

_NEGLIGIBLE = 1e-3
"""Share of the largest value: a gradient may be zero but for rounding, as that of a bias before a
softmax over the tokens.
"""

DRAWS = 3
"""Sets of arguments, from so many random inputs of the mixer; blocks take them in turn."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def time_kernels(
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    *,
    skipped: Sequence[str] = (),
    strict: bool = True,
) -> Measured:
    """Time every implementation of all operations that the mixers call.

    Args:
        mixers: which call operations.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.

    Returns:
        JSON values. `settings`; `best`: see `mixers.roofline`; `kernels`: see `_speed`, by mixer,
        length and operation, the reference first; `skipped`: what was not timed, and why.

    Raises:
        SubquadError: a mixer cannot be built or called so.
    """
    device = torch_device(settings.device)
    left_out = LeftOut(skipped, strict)
    speeds: list[Measured] = []
    gc.collect()
    with one_thread(), memory_bounded(device):
        best = roofline(device, DTYPES[settings.precision])
        for length in lengths_of(settings):
            attention = None
            with left_out.noting(BASELINE, length):
                attention = timed_core(settings, length)
            for mixer in mixers:
                calls: list[_OperationCall] = []
                with left_out.noting(mixer.text, length):
                    calls = _calls(mixer, settings, length)
                if not calls:
                    left_out.lines.append(f"{mixer.text} at length {length}: calls no operation")
                for call in calls:
                    with left_out.noting(mixer.text, length):
                        timed = call.timed(settings, left_out)
                        speeds += _speeds(mixer, call, timed, attention, settings.rounds)
    return {
        "settings": asdict(settings),
        "best": best,
        "kernels": speeds,
        "skipped": left_out.lines,
    }


@dataclass(frozen=True)
class _OperationCall:
    """One call of an operation by a mixer.

    Attributes:
        operation: that was called.
        chosen: the implementation that ran.
        sets: arguments of the call, from several inputs of the mixer.
        length: of these inputs.
    """

    operation: Operation
    chosen: str
    sets: Sequence[Arguments]
    length: int

    def timed(self, settings: SpeedSettings, left_out: LeftOut) -> list[_TimedImplementation]:
        """The reference, and each implementation that takes these arguments and gives the same,
        all warm.
        """
        device = torch_device(settings.device)
        operation = self.operation
        reference = _TimedImplementation(REFERENCE, operation.reference, self.sets)
        timed = [reference]
        for form in operation.implementations:
            is_elsewhere = form.devices and device.type not in form.devices
            if form.name == REFERENCE or is_elsewhere:
                continue
            where = f"{operation.name} {form.name} at length {self.length}"
            if not all(form.takes(*args, **kwargs) for args, kwargs in self.sets):
                left_out.lines.append(f"{where}: takes no such arguments")
                continue
            timing = _TimedImplementation(form.name, form.function, self.sets)
            pairs = zip(timing.both(), reference.both(), strict=True)
            apart = largest_gap(list(pairs), _NEGLIGIBLE)
            if apart <= SAME[settings.precision]:
                timed.append(timing)
                continue
            left_out.lines.append(
                f"{where}: its numbers are {apart:.1e} of the largest from the reference's"
            )
        return [timing.warm_up() for timing in timed]


class _TimedImplementation(Warm):
    """An implementation with arguments of one kind, of which blocks take the sets in turn.

    Attributes:
        touched: bytes of the arguments and results.
    """

    def __init__(self, name: str, function: Callable[..., Any], sets: Sequence[Arguments]):
        given = _tensors(sets[0])
        super().__init__(name, given[0].device)
        self._function = function
        self._sets = sets
        self._turn = 0
        results = _tensors(self._call())
        self.touched = sum([tensor.nbytes for tensor in (*given, *results)])
        generator = torch.Generator().manual_seed(3)
        self._grads = []
        for end in _differentiable(results):
            self._grads.append(torch.randn(end.shape, generator=generator).to(end))

    def _call(self) -> Any:
        args, kwargs = self._given()
        return self._function(*args, **kwargs)

    def _given(self) -> Arguments:
        return self._sets[self._turn % len(self._sets)]

    def forward(self) -> Any:
        with torch.no_grad():
            return self._call()

    def both(self) -> Sequence[Tensor | None]:
        """Results, and gradients of the arguments, of random gradients of the results."""
        given = _differentiable(_tensors(self._given()))
        results = _tensors(self._call())
        ends = _differentiable(results)
        if not ends:
            return results
        return [*results, *torch.autograd.grad(ends, given, self._grads, allow_unused=True)]

    def refresh(self) -> None:
        self._turn += 1


def _calls(mixer: MixerChoice, settings: SpeedSettings, length: int) -> list[_OperationCall]:
    """Each operation that the mixer calls, the first of its calls with tensors of these shapes."""
    layer = Timed(mixer.text, built_mixer(mixer, settings, length), settings, length)
    drawn = []
    with using() as chosen:
        for _ in range(DRAWS):
            layer.refresh()
            with recording() as calls:
                layer.result()
            drawn.append(tree_map_only(Tensor, _afresh, calls))
    found: dict[Any, _OperationCall] = {}
    for draws in zip(*drawn, strict=True):
        operation, *_ = draws[0]
        name = operation.name
        sets = [(args, kwargs) for _, args, kwargs in draws]
        given = _tensors(sets[0])
        shapes = [(tensor.shape, tensor.dtype) for tensor in given]
        found.setdefault((name, *shapes), _OperationCall(operation, chosen[name], sets, length))
    return list(found.values())


def _speeds(
    mixer: MixerChoice,
    call: _OperationCall,
    timed: Sequence[_TimedImplementation],
    attention: Timed | None,
    rounds: int,
) -> list[Measured]:
    """All implementations of one call, in turn.

    Returns:
        for each `mixer`, `operation`, `implementation`; `chosen`: whether it runs without being
        forced; `length`: L; `shape`: of the first argument; of the forward pass, and with the
        backward pass (`both_`), microseconds (`_us`) and time over that of the reference (`_ratio`)
        and over torch's attention of as many tokens and heads (`_attention`; None where that does
        not fit); bytes of arguments and results over the time of the forward pass, in GB/s
        (`gbytes`); what both passes add to memory at their peak, in MiB (`peak_mib`).
    """
    reference, *others = timed
    beside = [attention] if attention else []
    times = times_in_turn(reference, [*others, *beside], rounds)
    of_attention = times[attention] if attention else {}
    first = _tensors(call.sets[0])[0]
    found = []
    for timing in timed:
        own = times[timing]
        row: Measured = {
            "mixer": mixer.text,
            "operation": call.operation.name,
            "implementation": timing.name,
            "chosen": timing.name in call.chosen.split(", "),
            "length": call.length,
            "shape": list(first.shape),
        }
        for part in PARTS:
            taken, ratio = own[part]
            row[f"{part}_us"] = 1e6 * taken
            row[f"{part}_ratio"] = ratio
            _, other = of_attention.get(part, (0.0, None))
            row[f"{part}_attention"] = ratio / other if ratio and other else None
        forward, _ = own["forward"]
        row["gbytes"] = timing.touched / 1e9 / forward
        row["peak_mib"] = timing.memory / 2**20
        found.append(row)
    return found


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _differentiable(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.requires_grad]


def _afresh(tensor: Tensor) -> Tensor:
    """A tensor of its own, with a gradient where it had one."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
