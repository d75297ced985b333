"""What an experiment may say: one frozen schema. Reading files, overrides and studies are its
neighbours' work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, create_model, field_validator, model_validator

from subquad.addresses import has_secret
from subquad.plugin import Config, Misfit, Not, Role, Site, param
from subquad.record.stores import address_fault
from subquad.registry.allowed import LAYERS_PATTERN, NAME_PATTERN, RANGE_PATTERN
from subquad.registry.parameters import models_below

FORMAT = 1
"""Version of the experiment format; written into every run."""

Protocol = Literal["honest", "fixed", "paper"]


@dataclass(frozen=True)
class _Free:
    """The mark of a setting that decides no numbers; `portions`: of `Portions`."""

    portions: bool = False


_T = TypeVar("_T")
Portions = Annotated[_T, _Free(portions=True)]
"""`Free`, unless the samples of a batch change each other (`Facts.couples_samples`)."""
Free = Annotated[_T, _Free()]
"""A setting that decides no numbers.

It says where and in which portions a run is computed, what is written of it, or when it gives up.
Two runs that differ in it alone and both end have the same numbers, up to rounding and up to which
dropout masks are drawn. That is one fact, and all of these follow from it: the setting is no part
of digests and differences, so it may change when a run resumes; runs that differ in it are seeds of
one row of a table; a search does not vary it.

Every setting that is not marked decides numbers. Some of them change no more than rounding too:
`precision`, `tf32`, `compile` and `kernels` choose the arithmetic itself, which may be coarser and
is what a user of them compares.

One thing is more than this: the rows of a table are means over `train.seed`, which decides numbers.
"""


class Component(Config):
    """A plugin by name, with its parameters; the plugin's own schema checks `params`."""

    name: str = param(meaning="plugin name, `distribution:name` or `./file.py:Class`", min_length=1)
    params: dict[str, Any] = Field(default_factory=dict, description="the plugin's parameters")


class MixerEntry(Component):
    """Another mixer, where it stands instead of `mixer`."""

    layers: tuple[int | Annotated[str, Field(pattern=LAYERS_PATTERN)], ...] | None = param(
        None,
        meaning="its layers, from 0, or from the last one, -1; ranges are written 0..2 or "
        "-3..-1; null: every layer",
        min_length=1,
        strict=False,  # read from JSON as a list
    )
    role: Role | None = param(None, meaning="its sites: self, cross or decoder; null: all of them")

    @field_validator("layers", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        if isinstance(value, (int, str)):
            return [value]
        return value

    def numbers(self, num_layers: int) -> list[int]:
        """Its layers counted from 0, also those that a model of `num_layers` does not have."""
        if self.layers is None:
            return list(range(num_layers))
        found: dict[int, None] = {}
        for item in self.layers:
            start, _, end = str(item).partition("..")
            first = int(start)
            last = int(end or start)
            if first < 0:
                first += num_layers
            if last < 0:
                last += num_layers
            found |= dict.fromkeys(range(first, last + 1))
        return list(found)

    def takes(self, site: Site) -> bool:
        """Whether it stands at a site."""
        if self.role not in (None, site.role):
            return False
        return site.layer_index in self.numbers(site.num_layers)


class _Init(Config):
    @property
    def source(self) -> str:
        """Where the weights come from."""
        return getattr(self, "from")


Init = create_model(
    "Init",
    __base__=_Init,
    __doc__="Weights that a model starts from.",
    **{
        "from": (
            str,
            param(
                meaning="a run's folder, a .safetensors, .pth or .pt file, or timm:NAME",
                min_length=1,
            ),
        ),
        "strict": (Free[bool], param(True, meaning="refuse weights that are missing or not used")),
    },
)


class Train(Config):
    """How one model is optimised. Sizes are global: they do not depend on the number of workers."""

    epochs: int | None = param(20, meaning="passes over the training split", ge=1)
    steps: int | None = param(None, meaning="optimiser steps, instead of epochs", ge=1)
    batch_size: int = param(
        16, meaning="samples per optimiser step over all workers and micro-batches", ge=1
    )
    micro_batch: Portions[int | None] = param(
        None,
        meaning="most samples a worker holds at once; more are accumulated; null: its whole share",
        ge=1,
    )
    bucket_batches: int = param(
        0,
        meaning="batches whose samples are sorted by length among themselves, so that each "
        "is trimmed to its longest; 0: all are padded alike",
        ge=0,
    )
    optimizer: Literal["adamw", "adam", "radam", "sgd"] = param("adamw", meaning="optimiser")
    lr: float = param(1e-3, meaning="peak learning rate", gt=0)
    weight_decay: float = param(0.0, meaning="weight decay, decoupled for adamw", ge=0)
    beta1: float = param(
        0.9,
        meaning="first moment's decay, momentum for sgd; one-cycle moves it from 0.95 to "
        "0.85 and back",
        ge=0,
        lt=1,
        when={"schedule": Not("one-cycle")},
    )
    beta2: float = param(
        0.999, meaning="second moment's decay", ge=0, lt=1, when={"optimizer": Not("sgd")}
    )
    eps: float = param(1e-8, meaning="denominator's offset", gt=0, when={"optimizer": Not("sgd")})
    schedule: Literal["constant", "linear", "cosine", "one-cycle"] = param(
        "constant", meaning="learning rate over steps"
    )
    warmup_steps: int = param(
        0, meaning="steps of linear warm-up; for one-cycle the length of the rise", ge=0
    )
    min_lr_ratio: float = param(
        0.0,
        meaning="final over peak learning rate",
        ge=0,
        le=1,
        when={"schedule": ("linear", "cosine")},
    )
    clip_norm: float | None = param(None, meaning="largest gradient norm; null: no clipping", gt=0)
    ema_decay: float | None = param(
        None,
        meaning="decay of a moving average of the weights over updates, which is evaluated "
        "and kept; null: none",
        gt=0,
        lt=1,
    )
    precision: Literal["fp64", "fp32", "bf16", "fp16"] = param(
        "fp32", meaning="bf16 and fp16 are autocast over fp32 weights, fp16 with a loss scaler"
    )
    tf32: bool = param(
        False,
        meaning="allow TF32 matrix products on GPUs that have them",
        when={"precision": Not("fp64")},
    )
    compile: bool = param(False, meaning="torch.compile each block")
    activation_checkpointing: Free[bool] = param(
        False,
        meaning="keep each block's input alone and compute the rest again in the backward "
        "pass: less memory",
    )
    kernels: dict[str, str] | Literal["reference"] = param(
        {},
        meaning="implementations that are forced, as {operation: implementation}, or "
        "reference for all; else the best",
    )
    seed: int = param(0, meaning="seed of weights, sample order and dropout", ge=0, lt=2**32)
    eval_every_epochs: int | None = param(
        1, meaning="epochs between evaluations; null: only at the end", ge=1
    )
    eval_every_steps: int | None = param(
        None, meaning="steps between evaluations, instead of epochs", ge=1
    )
    eval_batch_size: Portions[int | None] = param(
        None, meaning="samples per evaluation batch and worker; null: batch_size", ge=1
    )
    patience: int | None = param(
        None,
        meaning="evaluations without improvement before stopping; null: never",
        ge=1,
        when=({"eval_every_epochs": Not(None)}, {"eval_every_steps": Not(None)}),
    )
    checkpoint_every_steps: Free[int | None] = param(
        None,
        meaning="steps between extra checkpoints; each evaluation writes one too; null: no "
        "extra ones",
        ge=1,
    )
    keep_checkpoints: Free[int] = param(
        2, meaning="newest checkpoints kept, besides the best", ge=1
    )
    log_every: Free[int] = param(10, meaning="steps between logged training metrics", ge=1)
    loader_workers: Free[int] = param(
        0, meaning="processes that read data; the order does not depend on it", ge=0
    )
    max_skipped_steps: Free[int] = param(
        3,
        meaning="non-finite steps in a row, each skipped on all workers, before the run stops",
        ge=1,
    )
    max_bad: Free[float] = param(
        0.001,
        meaning="share of a split's samples that may be unreadable before the run stops; "
        "the log names them",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if (self.epochs is None) == (self.steps is None):
            message = "give train.epochs or train.steps, and null for the other"
            raise Misfit(message, "epochs", "steps")
        if self.eval_every_epochs is not None and self.eval_every_steps is not None:
            message = (
                "give train.eval_every_epochs or train.eval_every_steps, and null for the other"
            )
            raise Misfit(message, "eval_every_epochs", "eval_every_steps")
        return self


class Resources(Config):
    """Where it runs."""

    workers: Portions[
        Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=RANGE_PATTERN)]
    ] = param(
        1,
        meaning="training processes; 1..4: as many of these as there is room for, more "
        "or fewer when that changes",
    )
    cpus_per_worker: Free[float] = param(
        1.0,
        meaning="CPU cores Ray reserves for each worker, and threads of each on a CPU: "
        "other ones change the last bits",
        gt=0,
    )
    gpus_per_worker: Free[float] = param(
        0.0, meaning="GPUs for each worker; 0: train on the CPU", ge=0
    )
    strategy: Free[Literal["ddp", "fsdp2"]] = param(
        "ddp", meaning="replicate the model, or shard it", when={"workers": Not(1)}
    )
    max_failures: Free[int] = param(
        3, meaning="worker failures in a row without a new checkpoint before the run stops", ge=0
    )
    hang_timeout_s: Free[float] = param(
        300.0, meaning="seconds a worker may be silent in a collective call", gt=0
    )
    wait_s: Free[float] = param(
        0.0, meaning="seconds to wait for room on a cluster that grows", ge=0
    )
    storage: Free[str | None] = param(
        None,
        meaning="where checkpoints, and a copy of a run's files, are kept: s3://..., gs://..., or "
        "a folder that every node sees; null: in the run's folder",
        min_length=1,
    )

    @property
    def fewest(self) -> int:
        """Workers that it can train with."""
        return int(str(self.workers).partition("..")[0])

    @property
    def most(self) -> int:
        """Workers that it can make use of."""
        return int(str(self.workers).rpartition("..")[2])

    @model_validator(mode="after")
    def _some(self) -> Resources:
        if self.fewest > self.most:
            raise ValueError(f"the smaller number of workers comes first: got {self.workers}")
        if isinstance(self.workers, str) and self.fewest == self.most:
            raise ValueError(f"workers {self.workers} is one number: write {self.most}")
        fault = address_fault(self.storage or "")
        if fault:
            raise ValueError(f"resources.storage: {fault}")
        return self


OFF = "off"
"""The address of `tracking.uri` to which nothing is sent."""


class Tracking(Config):
    """MLflow."""

    experiment: Free[str | None] = param(
        None, meaning="MLflow experiment; null: the experiment's name", min_length=1
    )
    uri: Free[str | None] = param(
        None,
        meaning="MLflow tracking URI; null: sqlite beside the runs; off: nothing is sent, the "
        "run's folder has all of it in any case",
        min_length=1,
    )

    @property
    def address(self) -> str | None:
        """The store that is named; None where none is."""
        return self.uri if self.enabled else None

    @property
    def enabled(self) -> bool:
        """Whether anything is sent."""
        return self.uri != OFF

    @model_validator(mode="after")
    def _no_secrets(self) -> Tracking:
        if has_secret(self.uri or ""):
            raise ValueError(
                "tracking.uri must not hold a user name, password or token, as "
                "experiments are written to disk: "
                "put them into MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or the whole address into "
                "MLFLOW_TRACKING_URI"
            )
        return self


class Experiment(Config):
    """One training run, fully said."""

    format: Literal[1] = param(1, meaning="version of this format")
    name: Free[str] = param("experiment", meaning="folder of its runs", pattern=NAME_PATTERN)
    protocol: Protocol = param(
        "honest",
        meaning="honest: checkpoint chosen on a validation part of TRAIN; fixed: all of "
        "TRAIN, last epoch; "
        "paper: best test accuracy over epochs, labelled so",
    )
    dataset: Component
    task: Component
    backbone: Component
    mixer: Component
    mixers: tuple[MixerEntry, ...] = Field(
        default=(), strict=False, max_length=100, description="mixers of some layers or roles"
    )
    init: Init | None = Field(  # pyright: ignore[reportInvalidTypeForm]
        default=None, description="weights to start from"
    )
    train: Train = Field(default_factory=Train)
    resources: Resources = Field(default_factory=Resources)
    tracking: Tracking = Field(default_factory=Tracking)


@cache
def free_settings() -> dict[str, bool]:
    """Dotted keys of the settings that decide no numbers, and whether coupling changes it."""
    return dict(_free(Experiment, ""))


def _free(model: type[BaseModel], above: str) -> Iterator[tuple[str, bool]]:
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, _Free):
                yield above + name, mark.portions
        for inner in models_below(field):
            yield from _free(inner, f"{above}{name}.")


def decides_numbers(key: str, coupled: bool = False) -> bool:
    """Whether the setting with this dotted key decides numbers: one that the schema does not
    know does. `coupled`: the samples of a batch change each other.
    """
    return free_settings().get(key, True) and (coupled or key not in free_settings())
