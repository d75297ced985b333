"""The network of a run, as its backbone builds it around the mixers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from subquad.data import DataSpec
from subquad.engine.group import Shard
from subquad.engine.tensors import seed_everything
from subquad.errors import ConfigError, PluginError
from subquad.experiment import Run
from subquad.experiment.schema import Experiment, Train
from subquad.nn import Backbone, BackboneContext, TokenMixer
from subquad.nn.numbers import dense
from subquad.plugin import Site
from subquad.registry import build_class, make_mixer


class TooLarge(ConfigError):
    """A model does not fit into this machine's memory."""


def parameter_dtype(train: Train) -> torch.dtype:
    """Type of weights and inputs: float64 for fp64, else float32 (bf16 and fp16 are autocast)."""
    return torch.float64 if train.precision == "fp64" else torch.float32


def build_model(run: Run, spec: DataSpec, num_outputs: int, shard: Shard | None = None) -> Backbone:
    """The backbone with its mixers and a head of this width; the same seed draws the same weights
    on every rank.

    Args:
        shard: takes each block once it is made.

    Raises:
        ConfigError, PluginError: the mixer cannot stand where the backbone puts it, or has losses
            that forbid trimming; or a weight cannot be trained as it lies in memory.
    """
    train = run.experiment.train
    built = list[Site]()
    seed_everything(train.seed)

    def make(site: Site) -> TokenMixer:
        built.append(site)
        return make_mixer(*run.mixer_at(site), site)

    def finish(block: nn.Module) -> nn.Module:
        if shard is None:
            return block
        dense(block, parameter_dtype(train))
        return shard(block)

    context = BackboneContext(
        spec=spec, num_outputs=num_outputs, make_mixer=make, seed=train.seed, finish=finish
    )
    try:
        model = build_class(run.backbone)(run.backbone_config, context)
    except (MemoryError, RuntimeError, PluginError) as error:  # torch's own kind is the second
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        raise TooLarge(
            f"this model does not fit into memory: {error}; give smaller sizes"
        ) from error
    _check(model, run.experiment, built)
    dense(model, parameter_dtype(train))
    return model


def _check(model: Backbone, experiment: Experiment, built: Sequence[Site]) -> None:
    """Refuse a model that cannot be trained as the experiment says.

    Args:
        built: where it has mixers.
    """
    for number, entry in enumerate(experiment.mixers):
        if not any(map(entry.takes, built)):
            raise ConfigError(
                f"mixers[{number}]: no mixer of this model has its layers and role; leave it out"
            )
    if experiment.train.bucket_batches:
        _check_extra_losses(model, experiment.train.bucket_batches)
    complex_weights = [name for name, weight in model.named_parameters() if weight.is_complex()]
    if complex_weights and experiment.resources.strategy == "fsdp2":
        raise ConfigError(
            "resources.strategy: got 'fsdp2', which cannot shard complex weights "
            f"({complex_weights[0]}); use ddp"
        )


def _check_extra_losses(model: Backbone, batches: int) -> None:
    """Refuse trimming with extra losses that are trained on: nothing says that these leave
    padding out.
    """
    weighed = set[str]()
    for module in model.modules():
        for name, weight in getattr(module, "loss_weights", {}).items():
            if weight:
                weighed.add(name)
    if weighed:
        names = ", ".join(sorted(weighed))
        raise ConfigError(
            f"train.bucket_batches: got {batches}, trims padding, which the mixer's extra loss may "
            f"count ({names}); use 0, or a weight of 0 for the loss, in mixer.params"
        )
