"""Checkpoints that are whole or not there: safetensors and JSON, committed by a sha256 manifest written last.

    checkpoints/step-00001200/
        model.safetensors       parameters and buffers by canonical name; with `train.ema_decay` the averages
        optimizer.safetensors   `<parameter>/<state>`; with `train.ema_decay` also `/<parameter>`, which go on training
        rng.safetensors         generator states, `<rank>/<generator>`
        state.json              position, counters, best metric, ...
        manifest.json           size and sha256 of the files above: without a manifest that fits there is no checkpoint

No rename, append or link is needed, and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from subquad.engine import faults
from subquad.errors import CheckpointError, DiskError
from subquad.runs import json_value, parse_object
from subquad.storage import content_of, is_remote, listing, put, reason_of, remove_tree

_FORMAT = 1
MANIFEST = "manifest.json"
_FILES = ("model.safetensors", "optimizer.safetensors", "rng.safetensors", "state.json")
_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        model, optimizer, rng: tensors by name.
        state: JSON values.
    """

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    rng: Mapping[str, Tensor]
    state: Mapping[str, Any]


def _folder_of(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def manifest_of(root: Path, step: int) -> Path:
    """The file with the sha256 of a checkpoint's others."""
    return _folder_of(root, step) / MANIFEST


def write(root: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; when this returns it is on the disk, or in the object store, and committed.

    Raises:
        DiskError: it cannot be written; older checkpoints are untouched.
    """
    folder = _folder_of(root, step)
    tensors = (save(dict(one)) for one in (checkpoint.model, checkpoint.optimizer, checkpoint.rng))
    contents: dict[str, bytes] = dict(zip(_FILES, (*tensors, _json(checkpoint.state)), strict=True))
    manifest = {
        "format": _FORMAT,
        "step": step,
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in contents.items()},
    }
    try:
        if not is_remote(root):
            remove_tree(folder, MANIFEST)
            folder.mkdir(parents=True)
        _write(folder, contents)
        faults.point("save.manifest")
        _write(folder, {MANIFEST: _json(manifest)})
    except (OSError, DiskError) as error:
        if not is_remote(root):  # nothing finds one without its manifest, and a store that fails may take minutes
            remove_tree(folder)
        raise _no_room(folder, error, sum(map(len, contents.values()))) from error
    faults.point("save.done")


def _json(data: Any) -> bytes:
    return (json.dumps(json_value(data), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files so that they outlast a crash of the machine; those of an object store at once."""
    if is_remote(folder):
        put({folder / name: data for name, data in contents.items()})
        return
    for name, data in contents.items():
        faults.point(f"save.{name}")
        with (folder / name).open("wb") as stream:
            half = len(data) // 2
            stream.write(data[:half])
            faults.point("save.half")
            stream.write(data[half:])
            stream.flush()
            os.fsync(stream.fileno())
    _sync(folder)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_room(folder: Path, error: OSError | DiskError, needed: int) -> DiskError:
    reason = reason_of(error.__cause__ or error)
    room = f"it needs {needed / 1e6:.1f} MB"
    with suppress(OSError):
        room += "" if is_remote(folder) else f", {shutil.disk_usage(folder.parent).free / 1e6:.1f} MB are free"
    return DiskError(f"cannot write checkpoint {folder}: {reason}; {room}; earlier checkpoints are intact")


def _steps(root: Path) -> dict[int, bool]:
    """Steps that have a folder, oldest first, and whether each is finished."""
    names = listing(root)
    tops = {name.partition("/")[0] for name in names}
    steps = {int(match.group(1)): top for top in tops if (match := _FOLDER.fullmatch(top))}
    return {step: f"{steps[step]}/{MANIFEST}" in names for step in sorted(steps)}


def finished_steps(root: Path) -> list[int]:
    """Steps of finished checkpoints, damaged or not, oldest first."""
    return [step for step, finished in _steps(root).items() if finished]


def read_checkpoint(root: Path, step: int) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises:
        CheckpointError: it is not committed, damaged, or of another format.
    """
    model, optimizer, rng = (_tensors(root, step, name) for name in _FILES[:3])
    return Checkpoint(model, optimizer, rng, _state(root, step))


def read_weights(root: Path, step: int, digest: str | None) -> Mapping[str, Tensor]:
    """The model of one checkpoint; files that only training needs may be damaged.

    Raises:
        CheckpointError: it is not committed, damaged, of another format, or of an experiment with another digest.
    """
    if _state(root, step).get("digest") != digest:
        raise CheckpointError(f"{_folder_of(root, step)}: belongs to another experiment")
    return _tensors(root, step, _FILES[0])


def _state(root: Path, step: int) -> dict[str, Any]:
    path = _folder_of(root, step) / _FILES[3]
    try:
        state = parse_object(_verified(path, _manifest(path.parent, step)))
        told, best = state["progress"]["step"], _best_step(state)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: unreadable: {error!r}") from error
    if told != step or not 0 <= (best or 0) <= step:
        raise CheckpointError(f"{path}: damaged: it speaks of step {told!r}, the best one {best!r}")
    return state


def _best_step(state: Mapping[str, Any]) -> int | None:
    """The step of the best evaluation so far, None where there is none."""
    best = state["progress"].get("best")
    return int(best["step"]) if best else None


def _manifest(folder: Path, step: int) -> dict[str, Any]:
    try:
        manifest = parse_object(content_of(folder / MANIFEST))
    except (OSError, ValueError) as error:
        why = f"no readable {MANIFEST}: the checkpoint was never finished or is damaged"
        raise CheckpointError(f"{folder}: {why}") from error
    if manifest.get("format") != _FORMAT:
        raise CheckpointError(
            f"{folder}: checkpoint format {manifest.get('format')!r}, this subquad reads format {_FORMAT}: "
            "use the subquad version in the run's environment.json"
        )
    if manifest.get("step") != step:
        raise CheckpointError(f"{folder / MANIFEST}: damaged: it speaks of step {manifest.get('step')!r}")
    return manifest


def _tensors(root: Path, step: int, name: str) -> Mapping[str, Tensor]:
    path = _folder_of(root, step) / name
    try:
        return load(_verified(path, _manifest(path.parent, step)))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:  # KeyError: a dtype that torch has not
        raise CheckpointError(f"{path}: unreadable: {error!r}") from error


def _verified(path: Path, manifest: Mapping[str, Any]) -> bytes:
    try:
        expected = manifest["files"][path.name]
        size, digest = expected["bytes"], expected["sha256"]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path.parent / MANIFEST}: damaged: no entry for {path.name}") from error
    try:
        data = content_of(path)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if len(data) != size:
        raise CheckpointError(f"{path}: {len(data)} bytes, the manifest says {size}: truncated or overwritten")
    if _sha256(data) != digest:
        raise CheckpointError(f"{path}: sha256 differs from the manifest: the file is damaged")
    return data


def newest_good(root: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that verifies, walking back over damaged ones; None where there is none at all.

    One whose best checkpoint has no good weights is passed over too: what is chosen in the end must be what was scored.

    Args:
        root: the run's checkpoints folder.
        warn: told, in one line each, which checkpoints were passed over and why.

    Raises:
        CheckpointError: there are finished checkpoints, and every one is damaged.
    """
    damaged: list[str] = []
    steps = _steps(root)
    for step in reversed(steps):
        try:
            found = read_checkpoint(root, step)
            if (best := _best_step(found.state)) not in (None, step):
                read_weights(root, best, found.state.get("digest"))
            return found
        except CheckpointError as error:
            warn(f"passed over a bad checkpoint: {error}")
            if steps[step]:
                damaged.append(str(error))
    if damaged:
        raise CheckpointError(
            f"all {len(damaged)} checkpoints are damaged: {'; '.join(damaged)}; without the folder {root} "
            "`subquad resume` begins anew"
        )
    return None


def trained_weights(root: Path, *, best: bool = True) -> Mapping[str, Tensor] | None:
    """A run's best weights, or the newest where it has none or they are asked for; None without a checkpoint.

    Raises:
        CheckpointError: they are damaged.
    """
    found = newest_good(root, lambda text: None)
    if found is None:
        return None
    chosen = _best_step(found.state) if best else None
    return found.model if chosen is None else read_weights(root, chosen, found.state.get("digest"))


def prune(root: Path, newest: int, keep: int, also: Iterable[int]) -> None:
    """Delete what a run that stands at step `newest` does not need.

    Later steps are a future that was given up; unfinished folders are of no use; of the finished ones the newest
    `keep` stay, and the steps in `also`.
    """
    steps = _steps(root)
    finished = [step for step, is_finished in steps.items() if is_finished and step <= newest]
    for step in steps.keys() - set(finished[-keep:]) - (set(also) & set(finished)):
        # Uncommit first: a kill half-way leaves an unfinished checkpoint, which nobody reads.
        remove_tree(_folder_of(root, step), MANIFEST)
