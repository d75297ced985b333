"""Backbones and tasks: the network around the mixers, and its loss and metrics.

Shape letters: B batch, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.nn.mixer import MixerOutput, ParameterRule, TokenMixer
from subquad.plugin import Config, Site

Batch = dict[str, Tensor]


class ModelOutput(NamedTuple):
    """What a backbone returns.

    Attributes:
        outputs: what the task's loss reads: a tensor, such as (B, C) logits, or any tree of
            tensors.
        losses: extra losses by name, (B,) each, unweighted, for logging.
        penalty: their weighted sum, (B,), added to the task's loss; None when there is none.
    """

    outputs: Any
    losses: Mapping[str, Tensor] = {}
    penalty: Tensor | None = None


def gather_losses(
    mixers: list[TokenMixer], results: list[MixerOutput]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Extra losses of all layers: the mean over the layers that give one, and their weighted sum.

    Returns:
        losses by name, (B,) each, and the penalty (B,) or None.
    """
    values_by_name: dict[str, list[Tensor]] = {}
    weighted: dict[str, list[Tensor]] = {}
    for mixer, result in zip(mixers, results, strict=True):
        batch_size = result.out.shape[0]
        for name, loss in result.losses.items():
            value = loss.expand(batch_size)  # one of the batch counts for each sample
            values_by_name.setdefault(name, []).append(value)
            weight = mixer.loss_weights.get(name, 0.0)
            if weight:
                weighted.setdefault(name, []).append(weight * value)
    losses = {name: torch.stack(values).mean(0) for name, values in values_by_name.items()}
    terms = []
    for name, values in weighted.items():
        terms.append(torch.stack(values).sum(0) / len(values_by_name[name]))
    if not terms:
        return losses, None
    return losses, torch.stack(terms).sum(0)


@dataclass(frozen=True, kw_only=True)
class BackboneContext:
    """What a backbone is built from.

    Attributes:
        spec: the data set's description.
        num_outputs: width the task asks of the head.
        make_mixer: builds the mixer that the experiment wants at one site, by its layer and role;
            weights are drawn from torch's global generator.
        seed: the run's seed.
        finish: takes each of the backbone's blocks once its weights are drawn, and returns it; a
            sharded run then keeps this rank's rows alone, before the next block is made.
    """

    spec: DataSpec
    num_outputs: int
    make_mixer: Callable[[Site], TokenMixer]
    seed: int = 0
    finish: Callable[[nn.Module], nn.Module] = lambda block: block


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of weights from elsewhere.

    Attributes:
        used: names of the model's tensors that were overwritten.
        missing: names of the model's tensors that were not given, or in another shape,
            or complex for a real one.
        unused: names of given tensors that the model has no place for, or one of another shape or
            kind of number.
    """

    used: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


class Backbone(nn.Module, ABC):
    """The network around the mixers. Built as `cls(config, context)`.

    Attributes:
        blocks: the repeated layers, in order: the units that torch.compile and FSDP2 work on.
    """

    blocks: nn.ModuleList

    @abstractmethod
    def forward(self, batch: Batch) -> ModelOutput:
        """Run the network on a collated batch (`inputs`, `keep`, ...)."""

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Parameters, by their name in this module, that the optimiser must treat differently.
        Default: none.

        Mixers give their own; what both name is treated as the mixer says.
        """
        return {}

    def import_weights(self, tensors: Mapping[str, Tensor]) -> Imported:
        """Start from other weights. Default: what has the name and shape of a tensor here, and
        numbers that it can hold, is copied into it.

        A backbone that knows other names renames them and calls this one. Softmax attention's
        projections have the names of those around any attention core, so a softmax model's weights
        go into a model with any of them.
        """
        own = self.state_dict(keep_vars=True)
        used = [
            name
            for name, tensor in own.items()
            if name in tensors
            and tensors[name].shape == tensor.shape
            and torch.can_cast(tensors[name].dtype, tensor.dtype)
        ]
        with torch.no_grad():
            for name in used:
                own[name].copy_(tensors[name])
        # tied weights have several names, and a checkpoint one of them
        filled = {id(own[name]) for name in used}
        return Imported(
            used=tuple(used),
            missing=tuple(name for name, tensor in own.items() if id(tensor) not in filled),
            unused=tuple(name for name in tensors if name not in used),
        )


class Example(NamedTuple):
    """An answer of a model in words.

    Attributes:
        target: what the data set gives.
        answer: what the model gave.
    """

    target: str
    answer: str


class Task(ABC):
    """Loss and metrics. Built as `cls(config, spec)`.

    The engine minimises `sum(loss_sum) / sum(weight)` over all ranks and micro-batches of a step.
    Weight and loss are two calls because the global weight has to be known before the first
    backward pass.

    Attributes:
        counts_tokens: the weight is a number of tokens, so that results give those per second.
    """

    counts_tokens = False

    def __init__(self, config: Config, spec: DataSpec):
        self.config = config
        self.spec = spec

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Width of the head."""

    @abstractmethod
    def loss(self, outputs: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """`(loss_sum, weight)`: the summed loss, a scalar with gradient, and the weight it is
        summed over.
        """

    def weight(self, batch: Batch) -> float | Tensor:
        """The weight of a batch, from the batch alone; must equal the second value of `loss`.
        Default: its samples.

        A tensor () where it has to be counted: a number would wait for the device.
        """
        return float(batch["labels"].shape[0])

    @abstractmethod
    def sums(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        """Exact sums of a batch (float64 or int64) that may be added over batches and ranks."""

    @abstractmethod
    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from the added sums."""

    def per_sample(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        """Arrays over the batch to keep for paired tests, such as `predicted` and `label`, (B,)
        each. Default: none.
        """
        return {}

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics that follow from the arrays of `per_sample` over a whole split. Default: none.

        The final evaluation has them besides those of `metrics`, and `subquad verify` asks for them
        again.

        Raises:
            ValueError: the arrays cannot be this task's.
        """
        return {}

    def remarks(self, kept: Mapping[str, Tensor]) -> Sequence[str]:
        """What a reader of the final scores must know, from the arrays of `per_sample`. Default:
        none.

        Reports say it below their tables.
        """
        return ()

    def examples(self, kept: Mapping[str, Tensor]) -> Sequence[Example]:
        """A few answers of the final evaluation in words, always of the same samples. Default:
        none.

        From the arrays of `per_sample`. Reports show them.
        """
        return ()

    def evaluate(
        self, model: Backbone, batch: Batch, *, final: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a batch adds to an evaluation: `sums` and `per_sample`. Default: both of one forward
        pass.

        A task that decodes to be judged overrides it. It runs without gradients, under the run's
        autocast.

        Args:
            model: the backbone, in evaluation mode.
            batch: of any split.
            final: the result is the run's, not one on the way: a task may do then what costs much.
        """
        outputs = model(batch).outputs
        return self.sums(outputs, batch), self.per_sample(outputs, batch)

    def decode(self, model: Backbone, batch: Batch) -> Any:
        """The model's answers to a batch, whose labels are not looked at: a tree with the batch
        first.

        `subquad predict` writes them. In a dictionary, "text" is token ids (B, T), 0 after their
        end, and "class" is numbers of classes (B,): they are written as words. Default: the outputs
        as they are.
        """
        return model(batch).outputs
