"""A trained model out of a run's folder: what it answers to a file of the user's, and what it
scores there.

Letters: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subquad.data import NO_LABEL, Dataset, DataSpec, Split
from subquad.drivers.folder import changes, reopen_one
from subquad.engine.checkpoint import trained_weights
from subquad.engine.evaluate import evaluate
from subquad.engine.group import CPU, Group
from subquad.engine.parts import ModelParts, build_dataset, build_model, build_task
from subquad.engine.start import start_from
from subquad.engine.tensors import load_model
from subquad.errors import ConfigError, PluginError, RunError
from subquad.experiment import Run
from subquad.nn import Imported
from subquad.nn.kernels import using

_OF_TASK = "task.params."


@dataclass(frozen=True)
class Trained:
    """A run's model with the weights of one checkpoint, in evaluation mode, and the data set
    that it was trained on.
    """

    dataset: Dataset
    parts: ModelParts

    @staticmethod
    def of(
        folder: Path, which: str, device: torch.device = CPU, settings: Sequence[str] = ()
    ) -> Trained:
        """From a run's folder.

        Args:
            folder: the run's.
            which: "best" or "last" checkpoint.
            device: where the model is to compute.
            settings: task.params.KEY=VALUE, others of the task than in training.

        Raises:
            ConfigError: a setting is none of the task.
            RunError: there is no such run or checkpoint, or its experiment was edited.
            CheckpointError: the weights of that checkpoint are damaged, or not here.
        """
        if which not in ("best", "last"):
            raise RunError(f"which: got {which!r}, must be 'best' or 'last'")
        if wrong := [setting for setting in settings if not setting.startswith(_OF_TASK)]:
            raise ConfigError(
                f"{wrong[0]}: only the task of a trained model can have other "
                f"settings: {_OF_TASK}KEY=VALUE"
            )
        run = reopen_one(folder)
        if changed := changes(run):
            names = ", ".join(changed[:9])
            raise RunError(f"{run.folder}: changed since the run was started: {names}")
        best = which == "best"
        weights = trained_weights(run.files.checkpoints, run.result, best=best, digest=run.digest)
        if weights is None:
            raise RunError(f"{run.folder}: no checkpoint yet")
        built = Trained._built(reopen_one(folder, settings) if settings else run, device)
        load_model(built.parts.bare_model, weights)
        return built

    @staticmethod
    def before(run: Run, device: torch.device = CPU) -> Trained:
        """A run's model as its training begins."""
        built = Trained._built(run, device)
        start_from(built.parts.bare_model, run.experiment)
        return built

    def swapped(self, run: Run) -> tuple[Trained, Imported]:
        """The model of a run that differs in its mixers, with these weights, and what became of
        them.

        Buffers are left out of the account: those that the original lacks are the new mixer's own,
        drawn from the seed.
        """
        built = Trained._built(run, self.parts.group.device, self.dataset)
        before = self.parts.bare_model
        after = built.parts.bare_model
        found = after.import_weights(before.state_dict())
        own = dict(after.named_parameters())
        trained = dict(before.named_parameters())
        missing = tuple(name for name in found.missing if name in own)
        unused = tuple(name for name in found.unused if name in trained)
        return built, replace(found, missing=missing, unused=unused)

    @staticmethod
    def _built(run: Run, device: torch.device, dataset: Dataset | None = None) -> Trained:
        dataset = dataset or build_dataset(run)
        spec = dataset.describe()
        task = build_task(run, spec)
        model = build_model(run, spec, task.num_outputs).to(device).eval()
        group = Group(device=device)
        return Trained(
            dataset, ModelParts(run=run, group=group, task=task, model=model, bare_model=model)
        )

    @property
    def spec(self) -> DataSpec:
        """What the model was built for."""
        return self.parts.task.spec

    def answers(self, split: Split, batch_size: int | None = None) -> Iterator[dict[str, Any]]:
        """The answer to each sample, in order, as JSON values.

        Raises:
            PluginError: the task's answers are no tensors with the batch first.
        """
        train = self.parts.train
        size = batch_size or train.eval_batch_size or train.batch_size
        for start in range(0, len(split), size):
            indices = np.arange(start, min(start + size, len(split)))
            batch = split.finish(
                self.parts.on_device(split.fetch(indices, epoch=0, seed=train.seed))
            )
            with torch.no_grad(), self.parts.autocast(), using(train.kernels):
                decoded = self.parts.task.decode(self.parts.bare_model, batch)
            yield from _rows(self.spec, decoded, len(indices))

    def scores(self, split: Split) -> dict[str, float]:
        """The task's metrics of labelled samples."""
        with using(self.parts.train.kernels):
            return evaluate(self.parts, split, per_sample=True)[0]


def _rows(spec: DataSpec, decoded: Any, count: int) -> Iterator[dict[str, Any]]:
    named = decoded if isinstance(decoded, Mapping) else {"outputs": decoded}
    for name, values in named.items():
        if not isinstance(values, Tensor) or not values.ndim or len(values) != count:
            raise PluginError(
                f"task: its answers cannot be written: {name!r} is no tensor with {count} rows"
            )
    columns = [_words(spec, name, values) for name, values in named.items()]
    yield from (dict(zip(named, row, strict=True)) for row in zip(*columns, strict=True))


def _words(spec: DataSpec, name: str, values: Tensor) -> list[Any]:
    """One value a sample: text of ids, names of classes, probabilities by class, other numbers
    as they are.
    """
    listed = values.tolist()
    if name == "text" and spec.text:
        return [spec.text(ids) for ids in listed]
    if not spec.class_names or name not in ("class", "probabilities"):
        return listed
    return [_by_class(value, spec.class_names, name == "class") for value in listed]


def _by_class(value: Any, names: tuple[str, ...], is_class: bool) -> Any:
    """A class as its name, None where there is none; a row of C probabilities by name; both at
    any depth.
    """
    if not isinstance(value, list):
        if value == NO_LABEL:
            return None
        return names[value]
    if is_class or isinstance(value[0], list):
        return [_by_class(inner, names, is_class) for inner in value]
    return dict(zip(names, value, strict=True))
