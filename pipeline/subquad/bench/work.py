"""What is timed of one mixer at one length: inference, and a training step's share.

Letters: B batch, L length, D model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from subquad.bench.clock import Clock
from subquad.bench.rows import Row
from subquad.cost import Count, count_pass
from subquad.nn import as_output

Part = Literal["forward", "both"]
PARTS: tuple[Part, ...] = ("forward", "both")


@dataclass
class Work:
    """A mixer with its input, and what was timed so far."""

    row: Row
    mixer: nn.Module
    x: Tensor
    repeats: dict[Part, int] = field(default_factory=dict)
    seconds: dict[Part, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    ratios: dict[Part, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def forward(self) -> Tensor:
        """Inference."""
        with torch.no_grad():
            return as_output(self.mixer(self.x)).out

    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients of input and parameters; extra losses count if weighted."""
        x = self.x.detach().requires_grad_()
        result = as_output(self.mixer(x))
        weights = getattr(self.mixer, "loss_weights", {})
        ends = [result.out, *(loss for name, loss in result.losses.items() if weights.get(name, 0.0))]
        wanted = [x, *(one for one in self.mixer.parameters() if one.requires_grad)]
        return torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)

    def action(self, part: Part) -> Callable[[], object]:
        """What is timed."""
        return self.forward if part == "forward" else self.both

    def time(self, part: Part, clock: Clock) -> float:
        """Seconds of one more block."""
        return clock.once(self.action(part), self.repeats[part])

    def count(self) -> Count:
        """Operations and bytes of `both`."""
        try:
            return count_pass(self.mixer, self.x)
        except Exception as error:  # it has run, so it is the counter that cannot follow
            return Count(flops=0, moved=0, operations=0, largest={}, unknown=(f"anything ({type(error).__name__})",))
