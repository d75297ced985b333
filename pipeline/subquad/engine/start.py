"""Weights that a model starts from: those of another run, of a file, or of timm (`init:`)."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subquad.engine import checkpoint
from subquad.engine.stored import packed, unpacked
from subquad.errors import ConfigError, DataError
from subquad.experiment.schema import Experiment
from subquad.nn import Backbone
from subquad.record.files import find_file
from subquad.record.layout import enter
from subquad.record.models import Result
from subquad.record.run_folder import RunFolder
from subquad.record.storage import reaching
from subquad.record.stores import place_at
from subquad.security.limits import check_pickle, open_zip


def start_from(model: Backbone, experiment: Experiment) -> dict[str, Any] | None:
    """Copy the weights that the experiment starts from into its model.

    Returns:
        for result.json: `from`, `sha256`, and the names of tensors `used`, `missing` and `unused`;
        None without `init`.

    Raises:
        ConfigError: they cannot be read, none fits, or with `init.strict` not all do.
    """
    init = experiment.init
    if init is None:
        return None
    tensors, sha256 = weights_of(init.source)
    found = model.import_weights(tensors)
    if not found.used:
        raise ConfigError(
            f"init.from: {init.source}: none of its {len(tensors)} tensors fits this model"
        )
    if init.strict and (found.missing or found.unused):
        kinds = {"missing": found.missing, "not used": found.unused}
        lacks = [f"{len(names)} {word} ({names[0]})" for word, names in kinds.items() if names]
        remedy = "init.strict=false starts with those that fit"
        raise ConfigError(f"init.from: {init.source}: tensors {' and '.join(lacks)}; {remedy}")
    return {
        "from": init.source,
        "sha256": sha256,
        "used": list(found.used),
        "missing": list(found.missing),
        "unused": list(found.unused),
    }


def weights_of(source: str) -> tuple[Mapping[str, Tensor], str]:
    """Tensors by name, and the SHA-256 of the file they come from, else of themselves.

    Args:
        source: what `init.from` says.

    Raises:
        ConfigError: they cannot be read.
    """
    place = place_at(source)
    with reaching(place, ConfigError):
        return _read(source, place)


def _read(source: str, path: Path) -> tuple[Mapping[str, Tensor], str]:
    if source.startswith("timm:"):
        tensors = _timm(source.removeprefix("timm:"))
    elif path.is_dir():
        path = enter(path)
        found = checkpoint.trained_weights(RunFolder.of(path).checkpoints, find_file(Result, path))
        if found is None:
            raise ConfigError(f"init.from: {path}: not a run with a checkpoint")
        tensors = dict(found)
    elif path.is_file() and path.suffix in _READERS:
        content = path.read_bytes()
        tensors = _READERS[path.suffix](f"init.from: {source}", content)
        return tensors, hashlib.sha256(content).hexdigest()
    else:
        kinds = "a run's folder, a .safetensors, .pth or .pt file, or timm:NAME"
        reason = f"must be {kinds}" if path.exists() else "no such run or file"
        raise ConfigError(f"init.from: {source}: {reason}")
    return tensors, _sha256(tensors)


def _torch_file(where: str, content: bytes) -> Mapping[str, Tensor]:
    """What `torch.save` wrote: tensors by name, bare or below "model" or "state_dict". Nothing
    in it is run.
    """
    try:
        _check_torch_file(where, content)
        with warnings.catch_warnings(action="ignore"):  # on how it was pickled
            found = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except DataError:
        raise
    except Exception as error:  # damaged files raise what their bytes happen to say
        raise ConfigError(
            f"{where}: not a file of torch.save that holds weights "
            "alone; save the model's state_dict(), "
            "or a .safetensors file"
        ) from error
    for key in ("model", "state_dict"):
        found = found.get(key, found) if isinstance(found, Mapping) else found
    entries = found.items() if isinstance(found, Mapping) else ()
    tensors = {str(name): value for name, value in entries if isinstance(value, Tensor)}
    if not tensors:
        raise ConfigError(f"{where}: holds no tensors by name")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            reason = "has values for which the file has no numbers of their own"
            raise ConfigError(f"{where}: tensor {name[:100]} {reason}")
    return tensors


def _check_torch_file(where: str, content: bytes) -> None:
    """Refuse a file of `torch.save` that would take more memory than it has bytes.

    Raises:
        DataError: it would.
        BadZipFile: it is damaged.
    """
    stream = BytesIO(content)
    names = set[str]()
    if content.startswith(_ZIP):
        with open_zip(where, stream) as found:
            for member in found.infolist():
                if member.filename.endswith(".pkl"):
                    names |= check_pickle(where, BytesIO(found.read(member)))
    else:  # the format before PyTorch 1.6: five pickles, then the numbers
        for _ in range(5):
            names |= check_pickle(where, stream)
    asking = sorted(name for name in names if name.endswith(_ROOM))
    if asking:
        raise DataError(f"{where}: asks for {asking[0]}, which makes room for any number of values")


_ZIP = b"PK\3\4"
_ROOM = ("bytearray", "Tensor")
"""Ends of names that a file of weights has no need to call."""
_READERS = {".safetensors": unpacked, ".pth": _torch_file, ".pt": _torch_file}


def _timm(name: str) -> Mapping[str, Tensor]:
    # timm unpickles what a folder or somebody's repository holds
    if not re.fullmatch(r"[\w.-]+", name):
        raise ConfigError(
            f"init.from: timm:{name}: must be a model's name alone; weights of a "
            "folder or a repository are given by "
            "their file, .safetensors, .pth or .pt"
        )
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            f"init.from: timm:{name}: timm is not installed: uv pip install timm"
        ) from None
    try:
        with _weights_alone():
            return timm.create_model(name, pretrained=True).state_dict()
    except Exception as error:  # an unknown name, no weights, no network
        raise ConfigError(f"init.from: timm:{name}: {error}") from error


@contextmanager
def _weights_alone() -> Iterator[None]:
    """`torch.load` runs nothing in the block, also where a version of timm tells it to read all
    of a pickle.
    """
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(packed({"": tensors[name].detach().cpu().contiguous()}))
    return digest.hexdigest()
