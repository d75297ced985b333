"""Speed of an operation's implementations as a ratio over its reference, on the arguments that a
mixer calls it with.

Letters: B batch, L length, D model width, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from subquad.nn.kernels import REFERENCE, Operation, recording, using
from subquad_tools.bench.clock import Warm, times_in_turn, times_longer
from subquad_tools.bench.mixers import lengths_of, measuring
from subquad_tools.bench.rows import LeftOut, Measured, MixerChoice, SpeedSettings
from subquad_tools.bench.timed import SAME, Timed, built_mixer, largest_gap, timed_attention


def time_kernels(
    mixers: Sequence[MixerChoice], settings: SpeedSettings, left_out: LeftOut
) -> Measured:
    """Time every implementation of all operations that the mixers call, and torch's attention.

    Args:
        mixers: which call operations.
        settings: how.
        left_out: gets what cannot be timed.

    Returns:
        JSON values. `settings`; `best`: see `roofline`; `kernels`: by length torch's attentions
        without projections, the fastest first, then by mixer and operation the implementations, the
        reference first: `mixer`, `operation`, `implementation`; `chosen`: whether it runs without
        being forced; `length`: L; `shape`: of the first argument; `Warm.measured` of a call, over
        the reference, with the floating-point operations of the reference; `attention_ratio`: time
        with the backward pass over that of the fastest attention of as many tokens and heads, None
        where none fits; `slower`: as `mixers._slower`, of the operation alone; `skipped`: what was
        not timed, and why.

    Raises:
        SubquadError: a mixer cannot be built or called so.
    """
    found: Measured = {"settings": settings.model_dump(), "kernels": [], "slower": []}
    with measuring(settings) as found["best"]:
        for length in lengths_of(settings):
            attentions = timed_attention(
                settings.model_copy(update={"core": True}), length, left_out
            )
            if attentions:
                asked = {"mixer": "", "length": length, "operation": "", "shape": []}
                _add(found, asked, attentions, attentions)
            for mixer in mixers:
                calls = {}
                with left_out.noting(mixer.text, length):
                    calls = _calls(mixer, settings, length)
                if not calls:
                    left_out.lines.append(f"{mixer.text} at length {length}: calls no operation")
                for (operation, *shapes), (args, kwargs, chosen) in calls.items():
                    asked = {
                        "mixer": mixer.text,
                        "length": length,
                        "operation": operation.name,
                        "shape": list(shapes[0][0]),
                    }
                    with left_out.noting(mixer.text, length):
                        _add(
                            found,
                            asked,
                            _timed(operation, args, kwargs, settings, length, left_out),
                            attentions,
                            chosen,
                        )
    return {**found, "skipped": left_out.lines}


def _calls(mixer: MixerChoice, settings: SpeedSettings, length: int) -> dict[Any, Any]:
    """Each operation that the mixer calls, with tensors of the same shapes once: arguments and the
    implementation that ran, by the operation, shapes and number formats.
    """
    layer = Timed(mixer.text, built_mixer(mixer, settings, length), settings, length)
    with using() as chosen, recording() as calls:
        layer.ends()

    def afresh(tensor: Tensor) -> Tensor:
        """A tensor of its own, with a gradient where it had one."""
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    found = {}
    for operation, args, kwargs in tree_map_only(Tensor, afresh, calls):
        found.setdefault(
            (operation, *[(tensor.shape, tensor.dtype) for tensor in _tensors((args, kwargs))]),
            (args, kwargs, chosen[operation.name]),
        )
    return found


def _timed(
    operation: Operation,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: SpeedSettings,
    length: int,
    left_out: LeftOut,
) -> list[_TimedImplementation]:
    """The reference, and each implementation that takes these arguments and gives the same, all
    warm.
    """
    reference = _TimedImplementation(REFERENCE, operation.reference, args, kwargs)
    timed = [reference]
    for form in operation.implementations:
        is_elsewhere = form.devices and reference.device.type not in form.devices
        if form.name == REFERENCE or is_elsewhere:
            continue
        where = f"{operation.name} {form.name} at length {length}"
        if not form.takes(*args, **kwargs):
            left_out.lines.append(f"{where}: takes no such arguments")
            continue
        timing = _TimedImplementation(form.name, form.function, args, kwargs)
        apart = largest_gap(timing.both(), reference.both())
        if apart <= SAME[settings.precision]:
            timed.append(timing)
        else:
            left_out.lines.append(
                f"{where}: its numbers are {apart:.1e} of the largest from the reference's"
            )
    return [timing.warm_up() for timing in timed]


class _TimedImplementation(Warm):
    """An implementation with arguments."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ):
        self._call = partial(function, *args, **kwargs)
        self._given = _tensors((args, kwargs))
        super().__init__(name, self._given[0].device)
        generator = torch.Generator().manual_seed(3)
        self._grads = [
            torch.randn(end.shape, generator=generator).to(end)
            for end in _differentiable(self.ends()[1])
        ]

    def ends(self) -> tuple[list[Tensor], list[Tensor]]:
        return self._given, _tensors(self._call())

    def forward(self) -> Any:
        with torch.no_grad():
            return self._call()

    def both(self) -> Sequence[Tensor | None]:
        """Results, and gradients of the arguments, of random gradients of the results."""
        made = _tensors(self._call())
        ends = _differentiable(made)
        if not ends:
            return made
        return [
            *made,
            *torch.autograd.grad(
                ends, _differentiable(self._given), self._grads, allow_unused=True
            ),
        ]

    def refresh(self) -> None:
        """The mixer's own arguments stay."""


def _add(
    found: Measured,
    asked: Measured,
    rows: Sequence[Warm],
    attentions: Sequence[Warm],
    chosen: str = "",
) -> None:
    """Time rows in turn over the first, with the fastest attention beside them, and add them; and
    each that is faster than a chosen one.
    """
    times = times_in_turn(rows[0], [*rows[1:], *attentions[:1]], found["settings"]["rounds"])
    count = rows[0].count()
    for row in rows:
        own = times[row]
        is_chosen = row.name in chosen.split(", ")
        ratio = None
        if attentions:
            ratio = float(np.median(own["both"].ratios / times[attentions[0]]["both"].ratios))
        added = {"implementation": row.name, "chosen": is_chosen, "attention_ratio": ratio}
        found["kernels"].append({**asked, **added, **row.measured(own, count, found["best"])})
        for other in rows if is_chosen else ():
            longer = times_longer(own, times[other])
            if longer:
                faster = {"chosen": row.name, "faster": other.name, "times": longer}
                found["slower"].append({**asked, **faster})


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _differentiable(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.requires_grad]
