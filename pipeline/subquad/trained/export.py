"""A trained model as a folder of its own, without its run or data: weights and what builds the
model around them.

`config.json` has the experiment, the description of the data and the head's width.
`model.safetensors` has the weights. A program for other runtimes, `model.pt2`, may lie beside them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from subquad.data import DataSpec
from subquad.engine.checkpoint import read_tensors
from subquad.engine.model import build_model
from subquad.engine.stored import packed
from subquad.engine.tensors import load_model, model_tensors
from subquad.errors import ConfigError, RunError, by_class, escaped
from subquad.experiment import checked_run, parse
from subquad.experiment.folder import found_in, note_written
from subquad.nn import Backbone, Decoder
from subquad.record.files import read_object, touching, write_json
from subquad.record.layout import enter
from subquad.record.models import Part
from subquad.record.names import EXPORTED
from subquad.record.storage import put, remove_tree
from subquad.record.sums import by_name, manifest_of
from subquad.security.disk import make_folder, rename, temporary_beside
from subquad.trained.model import Trained

_WEIGHTS = "model.safetensors"
_NOT_NEEDED = {"init", "resources", "tracking"}
"""Of the experiment: they may name places that nobody else has."""
_TOLERANCE = 1e-3
"""How far a program's outputs may be from the model's, relative to the largest."""


class _Exported(Part):
    """What config.json says."""

    format: Literal[1]
    experiment: dict[str, Any]
    num_outputs: int
    spec: DataSpec
    files: dict[str, dict[str, Any]]


def load_exported(folder: Path) -> Backbone:
    """The model of an exported folder, on the CPU, in evaluation mode.

    Raises:
        RunError: config.json cannot be read.
        CheckpointError: the weights are damaged, or missing.
    """
    folder = enter(folder)
    path = folder / EXPORTED
    try:
        config = _Exported.read(read_object(path))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: {error}") from error
    weights = read_tensors(folder, [_WEIGHTS], config.files)
    model = build_model(
        checked_run(parse(config.experiment), resolve=found_in(folder)),
        config.spec,
        config.num_outputs,
    )
    load_model(model, weights)
    return model.eval()


def export(trained: Trained, folder: Path, form: str) -> None:
    """Write an exported folder, whole or not at all.

    Args:
        trained: on the CPU.
        folder: must not exist.
        form: "safetensors", or "torch-export": also a program.

    Raises:
        RunError: the folder exists, or cannot be written.
        ConfigError: this model cannot be a program of this form.
    """
    if folder.exists():
        raise RunError(f"{folder}: exists; give a new folder")
    parts = trained.parts
    model = parts.bare_model
    config = {
        "format": 1,
        "subquad": version("subquad"),
        "experiment": parts.run.experiment.model_dump(mode="json", exclude=_NOT_NEEDED),
        "num_outputs": parts.task.num_outputs,
        "spec": TypeAdapter(DataSpec).dump_python(trained.spec, mode="json", exclude={"text"}),
    }
    part = temporary_beside(folder)
    try:
        with touching(folder):
            make_folder(part)
            if form != "safetensors":
                _write_program(model, trained.dataset.describe().example(3), part / "model.pt2")
            put({part / _WEIGHTS: packed(model_tensors(model))})
            write_json(
                part / EXPORTED,
                {**config, "files": manifest_of(by_name(part, sorted(part.iterdir())))},
            )
            rename(part, folder)
    finally:
        remove_tree(part)
    note_written([parts.run], folder)


class _Flat(nn.Module):
    """A model as exporters want it: tensors in, in the order of `names`, and a tensor out."""

    def __init__(self, model: Backbone, names: tuple[str, ...]):
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *arrays: Tensor) -> Any:
        return self.model(dict(zip(self.names, arrays, strict=True))).outputs


def _write_program(model: Backbone, example: Mapping[str, np.ndarray], path: Path) -> None:
    """A program for any number of samples of the data set's length, held against the model with
    another number.
    """
    if isinstance(model, Decoder):
        raise ConfigError(
            "--format torch-export: this model writes in a loop over tokens, which "
            "is no one program"
        )
    names = tuple(name for name in example if name != "labels")
    flat = _Flat(model, names).eval()
    arrays = _varied([torch.from_numpy(example[name]) for name in names])
    fewer = [array[:-1] for array in arrays]
    batch = torch.export.Dim("batch")
    any_batch = {"arrays": tuple({0: batch} for _ in arrays)}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.export.save(
                torch.export.export(flat, tuple(arrays), dynamic_shapes=any_batch), path
            )
            found = torch.export.load(path).module()(*fewer)
            wanted = flat(*fewer)
    except Exception as error:  # exporters raise anything
        first: BaseException = error
        while first.__cause__:  # the last ones are pages of advice
            first = first.__cause__
        raise ConfigError(
            f"--format torch-export: not possible with this model: {escaped(by_class(first), 300)}"
        ) from error
    if not bool((found - wanted).abs().max() <= _TOLERANCE * wanted.abs().max()):
        raise ConfigError(
            "--format torch-export: not possible with this model: the program's outputs are others"
        )


def _varied(arrays: list[Tensor]) -> list[Tensor]:
    """The example with other numbers and with padding, which a program must not take for
    constants.
    """
    generator = torch.Generator().manual_seed(0)
    for array in arrays:
        if array.is_floating_point():
            array.normal_(generator=generator)
        elif array.dtype == torch.bool:
            array[0, array.shape[1] // 2 + 1 :] = False
    return arrays
