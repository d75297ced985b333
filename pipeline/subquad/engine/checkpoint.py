"""Checkpoints that are whole or not there: safetensors and JSON, committed by a sha256 manifest
written last.

    checkpoints/step-00001200/
        model.safetensors       parameters and buffers by canonical name; with `train.ema_decay`
                                the averages
        optimizer.safetensors   `<parameter>/<state>`; with `train.ema_decay` also `/<parameter>`,
                                which go on training
        rng.safetensors         generator states, `<rank>/<generator>`
        state.json              position, counters, best metric, ...
        manifest.json           size and sha256 of the files above, digest of the experiment, the
                                best step so far: without a manifest that fits there is no
                                checkpoint

No rename, append or link is needed, and nothing is ever unpickled.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from subquad.engine import faults
from subquad.engine.tensors import packed, unpacked
from subquad.errors import CheckpointError, DataError, DiskError
from subquad.record.files import json_text, parse_object
from subquad.record.integrity import (
    FORMAT,
    GENERATORS,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    STATE,
    checkpoint_folder,
    manifest_at,
    steps_of,
)
from subquad.record.storage import content_of, is_remote, put, reason_of, remove_tree
from subquad.record.sums import change, sum_of
from subquad.security.disk import make_folder, opened


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


def write(root: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; when this returns it is on the disk, or in the object store, and
    committed.

    Raises:
        DiskError: it cannot be written; older checkpoints are untouched.
    """
    folder = checkpoint_folder(root, step)
    contents: dict[str, bytes] = {
        MODEL: packed(checkpoint.model),
        OPTIMIZER: packed(checkpoint.optimizer),
        GENERATORS: packed(checkpoint.rng),
        STATE: json_text(checkpoint.state).encode(),
    }
    best = checkpoint.state["progress"].get("best")
    manifest = {
        "format": FORMAT,
        "step": step,
        "best": best["step"] if best else None,
        "experiment": checkpoint.state.get("digest"),
        "files": {name: sum_of(data) for name, data in contents.items()},
    }
    try:
        if not is_remote(root):
            remove_tree(folder, MANIFEST)
            make_folder(folder)
        _write(folder, contents)
        faults.point("save.manifest")
        _write(folder, {MANIFEST: json_text(manifest).encode()})
    except (OSError, DiskError) as error:
        # nothing finds one without its manifest, and a store that fails may take minutes
        if not is_remote(root):
            remove_tree(folder)
        raise _no_room(folder, error, sum(map(len, contents.values()))) from error
    faults.point("save.done")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files so that they outlast a crash of the machine; those of an object store at once."""
    if is_remote(folder):
        put({folder / name: data for name, data in contents.items()})
        return
    for name, data in contents.items():
        faults.point(f"save.{name}")
        with opened(folder / name, "xb") as stream:
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
    if not is_remote(folder):
        with suppress(OSError):
            room += f", {shutil.disk_usage(folder.parent).free / 1e6:.1f} MB are free"
    return DiskError(
        f"cannot write checkpoint {folder}: {reason}; {room}; earlier checkpoints are intact"
    )


def finished_steps(root: Path) -> list[int]:
    """Steps of finished checkpoints, damaged or not, oldest first."""
    return [step for step, finished in steps_of(root).items() if finished]


def manifests(root: Path) -> list[Path]:
    """The manifests of all finished checkpoints."""
    return [checkpoint_folder(root, step) / MANIFEST for step in finished_steps(root)]


def read_checkpoint(root: Path, step: int) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises:
        CheckpointError: it is not committed, damaged, or of another format.
    """
    folder = checkpoint_folder(root, step)
    files = manifest_at(folder)["files"]
    return Checkpoint(
        model=read_tensors(folder / MODEL, files),
        optimizer=read_tensors(folder / OPTIMIZER, files),
        rng=read_tensors(folder / GENERATORS, files),
        state=_state(folder / STATE, files, step),
    )


def read_weights(root: Path, step: int, digest: str | None) -> Mapping[str, Tensor]:
    """The model of one checkpoint; files that only training needs may be damaged.

    Args:
        digest: that of the experiment which the checkpoint must belong to.

    Raises:
        CheckpointError: it is not committed, damaged, of another format, or of another experiment.
    """
    folder = checkpoint_folder(root, step)
    manifest = manifest_at(folder)
    if manifest["experiment"] != digest:
        raise CheckpointError(f"{folder}: belongs to another experiment")
    return read_tensors(folder / MODEL, manifest["files"])


def _state(path: Path, files: Mapping[str, Any], step: int) -> dict[str, Any]:
    try:
        state = parse_object(_verified(path, files))
        recorded = state["progress"]["step"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: unreadable: {error!r}") from error
    if recorded != step:
        raise CheckpointError(f"{path}: damaged: it speaks of step {recorded!r}")
    return state


def read_tensors(path: Path, files: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """The tensors of a file whose size and sum a manifest has.

    Raises:
        CheckpointError: it is damaged, or missing.
    """
    try:
        return unpacked(path, _verified(path, files))
    except DataError as error:
        raise CheckpointError(str(error)) from error


def _verified(path: Path, files: Mapping[str, Any]) -> bytes:
    try:
        data = content_of(path)
    except FileNotFoundError:
        data = None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    fault = change(str(path), files.get(path.name), None if data is None else sum_of(data))
    if data is None or fault:
        raise CheckpointError(fault)
    return data


def newest_good(root: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that verifies, walking back over damaged ones; None where there is none
    at all.

    One whose best checkpoint has no good weights is passed over too: what is chosen in the end must
    be what was scored.

    Args:
        root: the run's checkpoints folder.
        warn: told, in one line each, which checkpoints were passed over and why.

    Raises:
        CheckpointError: there are finished checkpoints, and every one is damaged.
    """
    damaged: list[str] = []
    steps = steps_of(root)
    for step in reversed(steps):
        try:
            found = read_checkpoint(root, step)
            manifest = manifest_at(checkpoint_folder(root, step))
            if (best := manifest["best"]) not in (None, step):
                read_weights(root, best, manifest["experiment"])
            return found
        except CheckpointError as error:
            warn(f"passed over a bad checkpoint: {error}")
            if steps[step]:
                damaged.append(str(error))
    if damaged:
        raise CheckpointError(
            f"all {len(damaged)} checkpoints are damaged: {'; '.join(damaged)}; "
            f"without the folder {root} "
            "`subquad resume` begins anew"
        )
    return None


def trained_weights(
    root: Path, result: Mapping[str, Any] | None, *, best: bool = True, digest: str | None = None
) -> Mapping[str, Tensor] | None:
    """A run's best weights, or its last ones; None before the first checkpoint.

    Where no evaluation chose, the last ones are the best. Only the model of that step is read:
    files that training needs may be damaged.

    Args:
        root: the run's checkpoints folder.
        result: the run's, None where it has none.
        digest: of the experiment that the weights must belong to; None: whatever the run says.

    Raises:
        CheckpointError: these weights are damaged, or not here.
    """
    chosen = _chosen(root, result or {}, best)
    if chosen is None:
        return None
    step, recorded_digest = chosen
    try:
        return read_weights(root, step, digest or recorded_digest)
    except CheckpointError as error:
        which = "best" if best else "last"
        raise CheckpointError(f"the {which} checkpoint is that of step {step}: {error}") from error


def _chosen(root: Path, result: Mapping[str, Any], best: bool) -> tuple[int, str] | None:
    """The step of the best or last weights, and their experiment.

    The result of a run that has ended says it, and the newest checkpoint of any other.
    """
    if result.get("steps"):
        step = (result.get("best") or {}).get("step") if best else None
        return step or result["steps"], result["experiment"]
    steps = finished_steps(root)
    if not steps:
        return None
    newest = manifest_at(checkpoint_folder(root, steps[-1]))
    return (newest["best"] if best else None) or newest["step"], newest["experiment"]


def prune(root: Path, newest: int, keep: int, also: Iterable[int]) -> None:
    """Delete what a run that stands at step `newest` does not need.

    Later steps are a future that was given up; unfinished folders are of no use; of the finished
    ones the newest `keep` stay, and the steps in `also`.
    """
    steps = steps_of(root)
    finished = [step for step, is_finished in steps.items() if is_finished and step <= newest]
    for step in steps.keys() - set(finished[-keep:]) - (set(also) & set(finished)):
        # Uncommit first: a kill half-way leaves an unfinished checkpoint, which nobody reads.
        remove_tree(checkpoint_folder(root, step), MANIFEST)
