"""Whether the files of a run's folder are those that its result and its checkpoints were made of.

Two manifests tell: `files` of result.json, of all that the result stands on, and manifest.json of
each checkpoint. What is not here at all (a copy without its checkpoints, a store that cannot be
reached) is no damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from subquad.errors import CheckpointError, UserError
from subquad.record.files import (
    find_file,
    parse_object,
    read_file,
    read_object,
    touching,
    write_json,
)
from subquad.record.layout import bound_files
from subquad.record.models import FILES, CheckpointManifest, Identity, Result, SearchSummary
from subquad.record.names import CHECKPOINTS, JOURNAL, MANIFEST, RESULT, SUMMARY
from subquad.record.run_folder import RunFolder
from subquad.record.storage import content_of, is_remote, listing
from subquad.record.sums import change, manifest_of, sum_at, sum_of
from subquad.security.disk import entered, opened
from subquad.security.strict_json import lines_of

FORMAT = 1
"""Version of the files of a checkpoint; manifest.json is written last."""
MODEL, OPTIMIZER, GENERATORS = "model.safetensors", "optimizer.safetensors", "rng.safetensors"
STATE = "state.json"
_ABOVE = f"{CHECKPOINTS}/"
_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Looked:
    """What the sums of a run's folder tell.

    Attributes:
        identity: what identity.json says; None where it cannot be read.
        result: what result.json says; None while there is none, or where it cannot be believed.
        faults: which files are missing or have changed, a line for each.
        absent: what is not here, and so was not looked at.
        checkpoints: how many are whole.
    """

    identity: Identity | None
    result: Result | None
    faults: tuple[str, ...]
    absent: tuple[str, ...] = ()
    checkpoints: int = 0


def write_result(run: Path, result: Mapping[str, Any], *more: Path) -> None:
    """End a run, with the manifest of the files that its result stands on.

    Args:
        more: files of its checkpoints that belong to them.
    """
    paths = bound_files(run)
    for path in more:
        paths[f"{CHECKPOINTS}/{path.parent.name}/{path.name}"] = path
    with touching(run):
        write_json(run / RESULT, {**result, "files": manifest_of(paths)})


def look(run: Path, *, far: bool = False) -> Looked:
    """Hold the files of a run's folder against their manifests. No plugin is needed, and nothing is
    changed.

    Args:
        run: the folder.
        far: look at checkpoints in an object store too, which brings them here.
    """
    with entered(run):
        identity = find_file(Identity, run)
        result, faults = _result(run)
        bound = dict((result and result.files) or {})
        manifests = {
            name.removeprefix(_ABOVE): bound.pop(name)
            for name in [*bound]
            if name.startswith(_ABOVE)
        }
        if result is None:
            faults += _unreadable(bound_files(run))
        else:
            faults += [*_changed(run, bound), *_contradictions(identity, result)]
    damaged = absent = ()
    whole = 0
    try:
        root = RunFolder(run, identity and identity.storage).checkpoints
        if is_remote(root) and not far:
            absent = (f"checkpoints, which are in {root}",)
        else:
            damaged, absent, whole = _of_checkpoints(root, manifests)
    except UserError as error:  # a copy that lies elsewhere, or a store that cannot be reached
        absent = (f"checkpoints: {error}",)
    return Looked(identity, result, (*faults, *damaged), tuple(absent), whole)


def _result(run: Path) -> tuple[Result | None, list[str]]:
    """What result.json says, and what is wrong with it."""
    if not (run / RESULT).exists():
        return None, []
    try:
        result = read_file(Result, run)
    except (OSError, ValueError) as error:
        return None, [f"{RESULT}: {getattr(error, 'strerror', None) or error}"]
    if result.files is None:
        return result, [f"{RESULT} does not say which files it stands on: it was written by hand"]
    return result, []


def _unreadable(files: Mapping[str, Path]) -> Iterator[str]:
    """Files that do not fit the check that each of them has, as a JSON file has, and each whole
    line of one of JSON lines.
    """
    for name, path in files.items():
        number = 0
        try:
            if name in FILES:
                read_file(FILES[name], path.parent)
            elif path.suffix == ".json":
                read_object(path)
            elif path.suffix == ".jsonl":
                with opened(path) as stream:
                    for line in lines_of(stream):
                        number += 1
                        if line.endswith(b"\n"):  # another one was being written
                            parse_object(line)
        except (OSError, ValueError) as error:
            where = f"line {number}: " if number else ""
            yield f"{name} has changed: {where}{error}"


def _changed(run: Path, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Files of a folder that are not what its manifest says."""
    for name, entry in recorded.items():
        path = PurePosixPath(name)
        if ".." in path.parts or path.is_absolute():
            yield f"{name} is no file of the folder, and yet its manifest names it"
        else:
            yield from _file_faults(name, entry, run / name)


def _file_faults(name: str, entry: Any, path: Path) -> Iterator[str]:
    """What has become of a file here or in a store, in one line; nothing where nothing has.

    Raises:
        DiskError: the store cannot be reached.
    """
    try:
        found = sum_of(content_of(path)) if is_remote(path) else sum_at(path)
    except FileNotFoundError:
        found = None
    except OSError as error:
        yield f"{name} cannot be read: {error.strerror}"
        return
    if fault := change(name, entry, found):
        yield fault


def _contradictions(identity: Identity | None, result: Result) -> Iterator[str]:
    """What a result says of itself that cannot be."""
    if identity and result.experiment and identity.digest not in ("", result.experiment):
        yield f"{RESULT} is of another experiment"
    test = result.test
    selected = result.best and result.best.step
    if test and test.checkpoint == "best" and test.step != selected:
        yield f"{RESULT}: step {test.step} was tested, the best one is {selected}"


def _of_checkpoints(root: Path, recorded: Mapping[str, Any]) -> tuple[list[str], list[str], int]:
    """What is wrong with the checkpoints that are there, which are not here, and how many are
    whole.

    Args:
        recorded: size and sha256 of manifests, by their names below `root`.
    """
    names = listing(root)
    here = {name.partition("/")[0] for name in names if "/" in name}
    wanted = {PurePosixPath(name).parent.as_posix() for name in recorded}
    if wanted and not here:
        return [], [CHECKPOINTS], 0
    faults: list[str] = []
    whole = 0
    for folder in sorted(here):
        name = f"{folder}/{MANIFEST}"
        if name not in recorded and not (name in names and _FOLDER.fullmatch(folder)):
            continue
        with entered(root / folder):
            found = list(_of_checkpoint(root / folder, recorded.get(name)))
        whole += not found
        if name in recorded or name in listing(root):  # else the run removed it meanwhile
            faults += found
    return faults, [f"{CHECKPOINTS}/{folder}" for folder in sorted(wanted - here)], whole


def _of_checkpoint(folder: Path, recorded: Any) -> Iterator[str]:
    """Files of one checkpoint that are not what its manifest says.

    Args:
        recorded: size and sha256 of the manifest; None where nothing tells.
    """
    above = f"{_ABOVE}{folder.name}"
    if recorded is not None:
        faults = list(_file_faults(f"{above}/{MANIFEST}", recorded, folder / MANIFEST))
        yield from faults
        if faults:
            return
    try:
        manifest = manifest_at(folder)
    except CheckpointError as error:
        yield str(error)
        return
    for name, entry in manifest.files.items():
        yield from _file_faults(f"{above}/{name}", entry, folder / name)


def look_at_search(search: Path) -> Iterator[str]:
    """Files of a search that are not what its search.json says, and lines of its journal that were
    edited.
    """
    path = search / JOURNAL
    if path.exists():
        yield from _unreadable({JOURNAL: path})
    if not (search / SUMMARY).exists():
        return
    try:
        files = read_file(SearchSummary, search).files
    except (OSError, ValueError) as error:
        yield f"{SUMMARY}: {error}"
        return
    yield from _changed(search, files)


def steps_of(root: Path) -> dict[int, bool]:
    """Steps that have a folder, oldest first, and whether their checkpoint was finished."""
    names = listing(root)
    folders = filter(_FOLDER.fullmatch, {name.partition("/")[0] for name in names})
    steps = {int(name.removeprefix("step-")): f"{name}/{MANIFEST}" in names for name in folders}
    return dict(sorted(steps.items()))


def shards_of(name: str, count: int) -> list[str]:
    """The files of `count` ranks that together hold what one file of this name would."""
    if count == 1:
        return [name]
    stem = name.removesuffix(".safetensors")
    return [f"{stem}-{rank:05d}-of-{count:05d}.safetensors" for rank in range(count)]


def checkpoint_folder(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step-{step:08d}"


def manifest_at(folder: Path) -> CheckpointManifest:
    """The manifest of a checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    path = folder / MANIFEST
    try:
        content = parse_object(content_of(path))
    except (OSError, ValueError) as error:
        why = "is not here"
        if any(name.startswith(f"{folder.name}/") for name in listing(folder.parent)):
            why = f"no readable {MANIFEST}: the checkpoint was never finished or is damaged"
        raise CheckpointError(f"{folder}: {why}") from error
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder}: checkpoint format {content.get('format')!r}, this subquad reads format "
            f"{FORMAT}: use the subquad version in the run's environment.json"
        )
    try:
        manifest = CheckpointManifest.read(content)
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from error
    step = manifest.step
    best = manifest.best or 0
    count = manifest.shards
    names = {GENERATORS, STATE, *shards_of(MODEL, count), *shards_of(OPTIMIZER, count)}
    is_here = folder == checkpoint_folder(folder.parent, step)
    if not is_here or best > step or manifest.files.keys() != names:
        raise CheckpointError(
            f"{path}: damaged: it speaks of step {step}, the best step {best}, and "
            f"{list(manifest.files)}"
        )
    return manifest
