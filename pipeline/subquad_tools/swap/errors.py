"""How far the outputs of a model's mixers move where other mixers stand in their places with the
same weights.

Letters: B batch, L length, D model width.
Reference: François et al. 2025, Drop-in efficient self-attention approximation method, Eq. 4. Each
of both networks sees the same inputs and runs by itself, so that a layer's error has those of the
layers below it in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from subquad.nn import Backbone, Batch, as_output
from subquad_tools.diagnose.measure import mixer_calls, real_positions


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """What a swap does to the outputs of one mixer; means over real tokens and channels.

    Attributes:
        layer: the module's name in the model.
        absolute: mean of |O - O'| (the paper's measure).
        relative: that over the mean of |O|.
        first_token: `relative` of the first token alone, which is the class token where there is
            one.
    """

    layer: str
    absolute: float
    relative: float
    first_token: float


@torch.no_grad()
def output_errors(
    original: Backbone, swapped: Backbone, batches: Iterable[Batch]
) -> list[OutputError]:
    """Errors of each mixer's output, in the order of their calls.

    Args:
        original: a network, set to evaluation mode.
        swapped: the same network with other mixers, set to evaluation mode too.
        batches: on the models' device.
    """
    original.eval()
    swapped.eval()
    names: list[str] = []
    sums: Tensor | None = None
    for batch in batches:
        with mixer_calls(original) as before:
            original(batch)
        with mixer_calls(swapped) as after:
            swapped(batch)
        names = [call.name for call in before]
        found = []
        for old, new in zip(before, after, strict=True):
            real = real_positions(batch, old.given[0], old.named)
            found.append(_sums(as_output(old.out).out, as_output(new.out).out, real))
        of_batch = torch.stack(found)
        sums = of_batch if sums is None else sums + of_batch
    assert sums is not None, "no batch"
    errors = []
    for name, (gap, size, count, first, first_size) in zip(names, sums.tolist(), strict=True):
        error = OutputError(
            layer=name,
            absolute=gap / count,
            relative=gap / size,
            first_token=first / first_size,
        )
        errors.append(error)
    return errors


def _sums(before: Tensor, after: Tensor, real: Tensor) -> Tensor:
    """(5,) float64 of outputs (B, L, D): |gap|, |before| and values, over real tokens; both over
    first ones.
    """
    gap = (after - before).abs().double()
    size = before.abs().double()
    return torch.stack(
        [
            gap[real].sum(),
            size[real].sum(),
            real.sum() * before.shape[-1],
            gap[:, 0].sum(),
            size[:, 0].sum(),
        ]
    )
