"""Backbones and tasks: the network around the mixers, and its loss and metrics.

Shape letters: B batch, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.nn.mixer import MixerOutput, TokenMixer
from subquad.plugin import Config, Site

Batch = dict[str, Tensor]


class ModelOutput(NamedTuple):
    """What a backbone returns.

    Attributes:
        outputs: what the task's loss reads; (B, C) logits for classification.
        losses: extra losses by name, (B,) each, unweighted, for logging.
        penalty: their weighted sum, (B,), added to the task's loss; None when there is none.
    """

    outputs: Tensor
    losses: Mapping[str, Tensor] = {}
    penalty: Tensor | None = None


def gather_losses(mixers: list[TokenMixer], results: list[MixerOutput]) -> tuple[dict[str, Tensor], Tensor | None]:
    """Extra losses of all layers: the mean over the layers that give one, and their weighted sum.

    Returns:
        losses by name, (B,) each, and the penalty (B,) or None.
    """
    found: dict[str, list[Tensor]] = {}
    weighted: dict[str, list[Tensor]] = {}
    for mixer, result in zip(mixers, results, strict=True):
        for name, value in result.losses.items():
            found.setdefault(name, []).append(value)
            if weight := mixer.loss_weights.get(name, 0.0):
                weighted.setdefault(name, []).append(weight * value)
    losses = {name: torch.stack(values).mean(0) for name, values in found.items()}
    terms = [torch.stack(values).sum(0) / len(found[name]) for name, values in weighted.items()]
    return losses, (torch.stack(terms).sum(0) if terms else None)


@dataclass(frozen=True, kw_only=True)
class BackboneContext:
    """What a backbone is built from.

    Attributes:
        spec: the data set's description.
        num_outputs: width the task asks of the head.
        make_mixer: builds the mixer of one site; weights are drawn from torch's global generator.
        seed: the run's seed.
    """

    spec: DataSpec
    num_outputs: int
    make_mixer: Callable[[Site], TokenMixer]
    seed: int = 0


class Backbone(nn.Module, ABC):
    """The network around the mixers. Built as `cls(config, context)`.

    Attributes:
        blocks: the repeated layers, in order: the units that torch.compile and FSDP2 work on.
    """

    blocks: nn.ModuleList

    @abstractmethod
    def forward(self, batch: Batch) -> ModelOutput:
        """Run the network on a collated batch (`inputs`, `keep`, ...)."""


class Task(ABC):
    """Loss and metrics. Built as `cls(config, spec)`.

    The engine minimises `sum(loss_sum) / sum(weight)` over all ranks and micro-batches of a step. Weight and loss are
    two calls because the global weight has to be known before the first backward pass.
    """

    def __init__(self, config: Config, spec: DataSpec):
        self.config = config
        self.spec = spec

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Width of the head."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """`(loss_sum, weight)`: the summed loss, a scalar with gradient, and the weight it is summed over."""

    def weight(self, batch: Batch) -> float:
        """The weight of a batch, from the batch alone; must equal the second value of `loss`. Default: its samples."""
        return float(batch["labels"].shape[0])

    @abstractmethod
    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Exact sums of a batch (float64 or int64) that may be added over batches and ranks."""

    @abstractmethod
    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from the added sums."""

    def per_sample(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Arrays over the batch to keep for paired tests, such as `predicted` and `label`, (B,) each. Default: none."""
        return {}
