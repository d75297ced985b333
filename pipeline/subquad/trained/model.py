"""A trained model out of a run's folder: what it answers to a file of the user's, and what it
scores there.

Letters: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from subquad.data import NO_LABEL, Dataset, DataSpec, Split
from subquad.engine.checkpoint import trained_weights
from subquad.engine.evaluate import evaluate
from subquad.engine.group import CPU, Group
from subquad.engine.inputs import inputs_of, kept_inputs, refuse_changed
from subquad.engine.model import build_model
from subquad.engine.parts import ModelParts, build_dataset, build_task
from subquad.engine.start import start_from
from subquad.engine.tensors import load_model
from subquad.errors import ConfigError, PluginError, RunError
from subquad.experiment import Run
from subquad.experiment.folder import changes, reopen_one
from subquad.nn import Imported
from subquad.nn.kernels import using
from subquad.nn.numbers import single_precision
from subquad.record.files import find_file
from subquad.record.models import Identity

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
        for setting in settings:
            if not setting.startswith(_OF_TASK):
                raise ConfigError(
                    f"{setting}: only the task of a trained model can have other settings: "
                    f"{_OF_TASK}KEY=VALUE"
                )
        run = reopen_one(folder)
        changed = changes(run, find_file(Identity, run.folder))
        if changed:
            names = ", ".join(changed[:9])
            raise RunError(f"{run.folder}: changed since the run was started: {names}")
        weights = trained_weights(
            run.files.checkpoints, run.result, best=which == "best", digest=run.digest
        )
        if weights is None:
            raise RunError(f"{run.folder}: no checkpoint yet")
        if settings:
            run = reopen_one(folder, settings)
        dataset = build_dataset(run)
        refuse_changed(kept_inputs(folder), inputs_of(run, dataset, test=False), run.folder)
        built = Trained._built(run, device, dataset)
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
        return built, replace(
            found,
            missing=_parameters_of(after, found.missing),
            unused=_parameters_of(before, found.unused),
        )

    @staticmethod
    def _built(run: Run, device: torch.device, dataset: Dataset | None = None) -> Trained:
        dataset = dataset or build_dataset(run)
        spec = dataset.describe()
        task = build_task(run, spec)
        model = build_model(run, spec, task.num_outputs).to(device).eval()
        return Trained(
            dataset,
            ModelParts(
                run=run, group=Group(device=device), task=task, model=model, bare_model=model
            ),
        )

    @property
    def spec(self) -> DataSpec:
        """What the model was built for."""
        return self.parts.task.spec

    def answers(self, split: Split, batch_size: int | None = None) -> Iterator[dict[str, Any]]:
        """The answer to each sample, in order, as JSON values; `id` is the split's name of it.

        Raises:
            PluginError: the task's answers are no tensors with the batch first.
        """
        parts = self.parts
        train = parts.train
        size = batch_size or train.eval_batch_size or train.batch_size
        for start in range(0, len(split), size):
            indices = np.arange(start, min(start + size, len(split)))
            batch = parts.on_device(split.fetch(indices, epoch=0, seed=train.seed))
            with torch.no_grad(), parts.autocast(), self._computing():
                decoded = parts.task.decode(parts.bare_model, split.finish(batch))
            for number, row in enumerate(_rows(self.spec, decoded, len(indices)), start):
                yield {"id": split.name(number), **row}

    def scores(self, split: Split) -> dict[str, float]:
        """The task's metrics of labelled samples."""
        with self._computing():
            metrics, _ = evaluate(self.parts, split, per_sample=True)
        return metrics

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """As in training."""
        train = self.parts.train
        with using(train.kernels), single_precision(tf32=train.tf32):
            yield


def _parameters_of(model: nn.Module, names: Sequence[str]) -> tuple[str, ...]:
    """Those names that are parameters of a model."""
    own = dict(model.named_parameters())
    return tuple(name for name in names if name in own)


def _rows(spec: DataSpec, decoded: Any, count: int) -> Iterator[dict[str, Any]]:
    named = decoded if isinstance(decoded, Mapping) else {"outputs": decoded}
    columns = []
    for name, values in named.items():
        if not isinstance(values, Tensor) or not values.ndim or len(values) != count:
            raise PluginError(
                f"task: its answers cannot be written: {name!r} is no tensor with {count} rows"
            )
        columns.append(_words(spec, name, values))
    for row in zip(*columns, strict=True):
        yield dict(zip(named, row, strict=True))


def _words(spec: DataSpec, name: str, values: Tensor) -> list[Any]:
    """One value a sample: text of ids, names of classes, probabilities by class, other numbers
    as they are.
    """
    listed = values.tolist()
    if name == "text" and spec.text:
        return list(map(spec.text, listed))
    names = spec.class_names
    if not names or name not in ("class", "probabilities"):
        return listed
    return [_by_class(value, names, name == "class") for value in listed]


def _by_class(value: Any, names: tuple[str, ...], is_class: bool) -> Any:
    """A class as its name, None where there is none; a row of C probabilities by name; both at
    any depth.
    """
    if not isinstance(value, list):
        return None if value == NO_LABEL else names[value]
    if is_class or isinstance(value[0], list):
        return [_by_class(inner, names, is_class) for inner in value]
    return dict(zip(names, value, strict=True))
