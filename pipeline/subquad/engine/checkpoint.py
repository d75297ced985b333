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

Of a sharded run each rank writes a file of the model and one of the optimiser with the rows that
it has, model-00000-of-00003.safetensors; whole tensors are in the first.

No rename, append or link is needed, and nothing is ever unpickled.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from subquad.engine import faults
from subquad.engine.group import ALONE, Group
from subquad.engine.stored import Pieces, Stored, pieces_of
from subquad.errors import CheckpointError, DataError, DiskError
from subquad.record.files import json_text, parse_object
from subquad.record.integrity import (
    FORMAT,
    GENERATORS,
    MODEL,
    OPTIMIZER,
    STATE,
    checkpoint_folder,
    manifest_at,
    shards_of,
    steps_of,
)
from subquad.record.models import Result
from subquad.record.names import MANIFEST
from subquad.record.storage import is_remote, put, reason_of, remove_tree, stream_of
from subquad.record.sums import Manifest, change, sum_from, sum_of
from subquad.security.disk import make_folder, opened


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        model, optimizer, rng: tensors by name; on the way to a file what this rank has of them.
        state: JSON values.
        first_rows: of a sharded run, the place of the first row of each tensor that is sharded.
    """

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    rng: Mapping[str, Tensor]
    state: Mapping[str, Any]
    first_rows: Mapping[str, int] = field(default_factory=dict)


def write(root: Path, step: int, checkpoint: Checkpoint, group: Group = ALONE) -> None:
    """Write a checkpoint; when this returns it is on the disk, or in the object store, and
    committed.

    Args:
        group: the ranks, every one of which calls this; the first writes what is not sharded.

    Raises:
        DiskError: it cannot be written; older checkpoints are untouched.
    """
    folder = checkpoint_folder(root, step)
    own = _contents(checkpoint, group)
    try:
        if not is_remote(root):
            group.of_first(_fresh, folder)
        files: dict[str, Any] = {}
        for sums in group.gather(group.together(_write, folder, own)):
            files |= sums
        best = checkpoint.state["progress"].get("best")
        manifest = {
            "format": FORMAT,
            "step": step,
            "best": best["step"] if best else None,
            "experiment": checkpoint.state.get("digest"),
            "files": files,
        }
        group.of_first(_commit, folder, json_text(manifest).encode())
    except (OSError, DiskError) as error:
        # nothing finds one without its manifest, and a store that fails may take minutes
        if group.first and not is_remote(root):
            remove_tree(folder)
        raise _no_room(folder, error, sum(map(len, chain(*own.values())))) from error


def _contents(checkpoint: Checkpoint, group: Group) -> dict[str, Pieces]:
    """The files that this rank writes."""
    tensors = {MODEL: checkpoint.model, OPTIMIZER: checkpoint.optimizer}
    count = group.world_size if checkpoint.first_rows else 1
    contents: dict[str, Pieces] = {}
    for name, own in tensors.items() if group.rank < count else ():
        contents[shards_of(name, count)[group.rank]] = pieces_of(own, checkpoint.first_rows)
    if group.first:
        contents[GENERATORS] = pieces_of(checkpoint.rng, {})
        contents[STATE] = [json_text(checkpoint.state).encode()]
    return contents


def _fresh(folder: Path) -> None:
    remove_tree(folder, MANIFEST)
    make_folder(folder)


def _commit(folder: Path, manifest: bytes) -> None:
    faults.point("save.manifest")
    _write(folder, {MANIFEST: [manifest]})
    faults.point("save.done")


def _write(folder: Path, contents: Mapping[str, Pieces]) -> Manifest:
    """Write files so that they outlast a crash of the machine; those of an object store at once.

    Returns:
        their sums.
    """
    if is_remote(folder):
        put({folder / name: b"".join(pieces) for name, pieces in contents.items()})
    else:
        for name, pieces in contents.items():
            faults.point(f"save.{name}")
            with opened(folder / name, "xb") as stream:
                half = len(pieces) // 2
                stream.writelines(pieces[:half])
                faults.point("save.half")
                stream.writelines(pieces[half:])
                stream.flush()
                os.fsync(stream.fileno())
        _sync(folder)
        _sync(folder.parent)
    return {name: sum_of(*pieces) for name, pieces in contents.items()}


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
    found = DiskError(
        f"cannot write checkpoint {folder}: {reason}; {room}; earlier checkpoints are intact"
    )
    found.shared = True  # each rank has its own
    return found


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
    manifest = manifest_at(folder)
    files = manifest.files
    return Checkpoint(
        model=read_tensors(folder, shards_of(MODEL, manifest.shards), files),
        optimizer=read_tensors(folder, shards_of(OPTIMIZER, manifest.shards), files),
        rng=read_tensors(folder, [GENERATORS], files),
        state=_state(folder / STATE, files, step),
    )


def read_weights(root: Path, step: int, digest: str | None) -> Stored:
    """The model of one checkpoint; files that only training needs may be damaged.

    Args:
        digest: that of the experiment which the checkpoint must belong to.

    Raises:
        CheckpointError: it is not committed, damaged, of another format, or of another experiment.
    """
    folder = checkpoint_folder(root, step)
    manifest = manifest_at(folder)
    if manifest.experiment != digest:
        raise CheckpointError(f"{folder}: belongs to another experiment")
    return read_tensors(folder, shards_of(MODEL, manifest.shards), manifest.files)


def _state(path: Path, files: Mapping[str, Any], step: int) -> dict[str, Any]:
    try:
        with _verified(path, files) as stream:
            state = parse_object(stream.read())
        recorded = state["progress"]["step"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: unreadable: {error!r}") from error
    if recorded != step:
        raise CheckpointError(f"{path}: damaged: it speaks of step {recorded!r}")
    return state


def read_tensors(folder: Path, names: Iterable[str], files: Mapping[str, Any]) -> Stored:
    """The tensors of files whose sizes and sums a manifest has.

    Raises:
        CheckpointError: one is damaged, or missing.
    """
    with ExitStack() as stack:
        streams = {}
        for name in names:
            streams[folder / name] = stack.enter_context(_verified(folder / name, files))
        try:
            return Stored(streams)
        except DataError as error:
            raise CheckpointError(str(error)) from error


@contextmanager
def _verified(path: Path, files: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """The content of a file, from its beginning."""
    with ExitStack() as stack:
        found = None
        try:
            stream = stack.enter_context(stream_of(path))
            found = sum_from(stream)
            stream.seek(0)
        except FileNotFoundError:
            stream = BytesIO()
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        fault = change(str(path), files.get(path.name), found)
        if fault:
            raise CheckpointError(fault)
        yield stream


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
            if manifest.best not in (None, step):
                read_weights(root, manifest.best, manifest.experiment)
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
    root: Path, result: Result | None, *, best: bool = True, digest: str | None = None
) -> Stored | None:
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
    chosen = _chosen(root, result, best)
    if chosen is None:
        return None
    step, recorded_digest = chosen
    try:
        return read_weights(root, step, digest or recorded_digest)
    except CheckpointError as error:
        which = "best" if best else "last"
        raise CheckpointError(f"the {which} checkpoint is that of step {step}: {error}") from error


def _chosen(root: Path, result: Result | None, best: bool) -> tuple[int, str | None] | None:
    """The step of the best or last weights, and their experiment.

    The result of a run that has ended says it, and the newest checkpoint of any other.
    """
    if result and result.steps:
        step = result.best.step if best and result.best else None
        return step or result.steps, result.experiment
    steps = finished_steps(root)
    if not steps:
        return None
    newest = manifest_at(checkpoint_folder(root, steps[-1]))
    return (newest.best if best else None) or newest.step, newest.experiment


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
