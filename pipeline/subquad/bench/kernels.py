"""Speed of an operation's implementations as a ratio over its reference, on the arguments that a mixer calls it with.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from subquad.bench.clock import one_thread, seconds
from subquad.bench.memory import added_memory, memory_bounded
from subquad.bench.mixers import LeftOut, roofline, times_in_turn
from subquad.bench.rows import DTYPES, MixerChoice, SpeedSettings, torch_device
from subquad.bench.timed import BASELINE, PARTS, SAME, SHORTEST_BLOCK, Timed, built_mixer, timed_core
from subquad.nn.kernels import REFERENCE, Operation, recording, using

DRAWS = 3
"""Sets of arguments, from so many random inputs of the mixer; blocks take them in turn."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def time_kernels(
    mixers: Sequence[MixerChoice],
    settings: SpeedSettings,
    *,
    skipped: Sequence[str] = (),
    strict: bool = True,
    done: Callable[[int], None] = lambda length: None,
) -> dict[str, Any]:
    """Time every implementation of all operations that the mixers call.

    Args:
        mixers: which call operations.
        settings: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.
        done: called after each length.

    Returns:
        JSON values. `settings`; `best`: see `mixers.roofline`; `kernels`: see `_speed`, by mixer, length and operation,
        the reference first; `skipped`: what was not timed, and why.

    Raises:
        SubquadError: a mixer cannot be built or called so.
    """
    device = torch_device(settings.device)
    left_out, speeds = LeftOut(list(skipped), strict), []
    gc.collect()
    with one_thread(), memory_bounded(device):
        best = roofline(device, DTYPES[settings.precision])
        for length in settings.lengths:
            attention = left_out.attempt(BASELINE, length, partial(timed_core, settings, length))
            for mixer in mixers:
                calls = left_out.attempt(mixer.text, length, partial(_calls, mixer, settings, length)) or []
                for call in calls:
                    timed = left_out.attempt(mixer.text, length, partial(call.timed, settings, left_out))
                    speeds += _speeds(mixer, call, timed, attention, settings.rounds) if timed else []
                if not calls:
                    left_out.lines.append(f"{mixer.text} at length {length}: calls no operation")
            done(length)
    return {"settings": asdict(settings), "best": best, "kernels": speeds, "skipped": left_out.lines}


class _Call:
    """One call of an operation by a mixer.

    Args:
        operation: that was called.
        chosen: the implementation that ran.
        sets: arguments of the call, from several inputs of the mixer.
        length: of these inputs.
    """

    def __init__(self, operation: Operation, chosen: str, sets: Sequence[Arguments], length: int):
        self.operation, self.chosen, self.sets, self.length = operation, chosen, sets, length

    def timed(self, settings: SpeedSettings, left_out: LeftOut) -> list[_TimedImplementation]:
        """The reference, and each implementation that takes these arguments and gives the same, all warm."""
        device = torch_device(settings.device).type
        functions = {one.name: one for one in self.operation.implementations}
        names = [name for name, one in functions.items() if name != REFERENCE and device in (one.devices or (device,))]
        reference = _TimedImplementation(REFERENCE, functions[REFERENCE].function, self.sets)
        timed = [reference]
        for name in names:
            if not all(functions[name].takes(*args, **kwargs) for args, kwargs in self.sets):
                left_out.lines.append(f"{self.operation.name} {name} at length {self.length}: takes no such arguments")
                continue
            one = _TimedImplementation(name, functions[name].function, self.sets)
            apart = one.apart(reference)
            if not apart <= SAME[settings.precision]:
                where = f"{self.operation.name} {name} at length {self.length}"
                left_out.lines.append(f"{where}: its numbers are {apart:.1e} of the largest from the reference's")
                continue
            timed.append(one)
        return [one.warm_up() for one in timed]


class _TimedImplementation:
    """An implementation with arguments of one kind.

    Attributes:
        name: of the implementation.
        memory: bytes that a pass forward and backward adds at its peak.
        touched: bytes of the arguments and results.
    """

    def __init__(self, name: str, function: Callable[..., Any], sets: Sequence[Arguments]):
        self.name, self._function, self._sets = name, function, sets
        self._turn = 0
        self._repeats: dict[str, int] = dict.fromkeys(PARTS, 1)
        first = _tensors(sets[0])
        self.device = first[0].device
        self.touched = _bytes(first) + _bytes(_tensors(self.forward()))
        generator = torch.Generator().manual_seed(3)
        ends = [one for one in _tensors(self._function(*sets[0][0], **sets[0][1])) if one.requires_grad]
        self._grads = [torch.randn(one.shape, generator=generator).to(one) for one in ends]

    def forward(self) -> Any:
        """Without a graph."""
        args, kwargs = self._sets[self._turn]
        with torch.no_grad():
            return self._function(*args, **kwargs)

    def both(self) -> list[Tensor | None]:
        """Results, and gradients of the arguments, of random gradients of the results."""
        given, (args, kwargs) = [], self._sets[self._turn]
        for one in _tensors((args, kwargs)):
            given += [one] if one.requires_grad else []
        results = _tensors(self._function(*args, **kwargs))
        ends = [one for one in results if one.requires_grad]
        if not ends:
            return [*results]
        return [*results, *torch.autograd.grad(ends, given, self._grads, allow_unused=True)]

    def apart(self, reference: _TimedImplementation) -> float:
        """The largest difference of results and gradients from the reference's, over the largest value of its kind."""
        worst, pairs = 0.0, list(zip(self.both(), reference.both(), strict=True))
        # A gradient may be zero but for rounding, as that of a bias before a softmax over the tokens.
        least = 1e-3 * max(float(theirs.detach().abs().max()) for _, theirs in pairs if theirs is not None)
        for mine, theirs in pairs:
            if mine is None or theirs is None:
                missing = mine if theirs is None else theirs
                worst = max(worst, 0.0 if missing is None or not missing.any() else math.inf)
                continue
            wide = torch.promote_types(theirs.dtype, torch.float64)
            mine, theirs = mine.detach().to(wide), theirs.detach().to(wide)
            worst = max(worst, float((mine - theirs).abs().max() / theirs.abs().max().clamp_min(max(least, 1e-30))))
        return worst

    def warm_up(self) -> _TimedImplementation:
        """Measure memory, and find how often a block repeats it."""
        self.both()
        self.memory = added_memory(self.both, self.device)
        for part in PARTS:
            self.seconds(part)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / max(self.seconds(part), 1e-6)))
        return self

    def seconds(self, part: str) -> float:
        """Of a call, by one more block, with the next arguments."""
        self._turn = (self._turn + 1) % len(self._sets)
        return seconds(getattr(self, part), self.device, self._repeats[part])


def _calls(mixer: MixerChoice, settings: SpeedSettings, length: int) -> list[_Call]:
    """Each operation that the mixer calls, the first of its calls with tensors of these shapes."""
    layer = Timed(mixer.text, built_mixer(mixer, settings, length), settings.shape(length), settings)
    drawn = []
    with using() as chosen:
        for _ in range(DRAWS):
            layer.refresh()
            with recording() as calls:
                layer.result()
            drawn.append([(operation, tree_map(_afresh, (args, kwargs))) for operation, args, kwargs in calls])
    found: dict[Any, _Call] = {}
    for same in zip(*drawn, strict=True):
        operation, given = same[0]
        key = operation.name, tuple((one.shape, one.dtype) for one in _tensors(given))
        if key not in found:
            found[key] = _Call(operation, chosen[operation.name], [given for _, given in same], length)
    return list(found.values())


def _speeds(
    mixer: MixerChoice,
    call: _Call,
    timed: Sequence[_TimedImplementation],
    attention: Timed | None,
    rounds: int,
) -> list[dict[str, Any]]:
    """All implementations of one call, in turn.

    Returns:
        for each `mixer`, `operation`, `implementation`; `chosen`: whether it runs without being forced; `length`: L;
        `shape`: of the first argument; of the forward pass, and with the backward pass (`both_`), microseconds (`_us`)
        and time over that of the reference (`_ratio`) and over torch's attention of as many tokens and heads
        (`_attention`; None where that does not fit); bytes of arguments and results over the time of the forward pass,
        in GB/s (`gbytes`); what both passes add to memory at their peak, in MiB (`peak_mib`).
    """
    beside = [attention] if attention else []
    times = dict(times_in_turn(timed[0], [*timed[1:], *beside], rounds))
    found = []
    for one in timed:
        row: dict[str, Any] = {
            "mixer": mixer.text,
            "operation": call.operation.name,
            "implementation": one.name,
            "chosen": one.name in call.chosen.split(", "),
            "length": call.length,
            "shape": list(_tensors(call.sets[0])[0].shape),
        }
        for part in PARTS:
            taken, ratio = times[one][part]
            row[f"{part}_us"], row[f"{part}_ratio"] = 1e6 * taken, ratio
            other = times[attention][part][1] if attention else None
            row[f"{part}_attention"] = ratio / other if ratio and other else None
        row |= {"gbytes": one.touched / 1e9 / times[one]["forward"][0], "peak_mib": one.memory / 2**20}
        found.append(row)
    return found


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _afresh(value: Any) -> Any:
    """A tensor of its own, with a gradient where it had one."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
