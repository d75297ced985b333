"""Prepared data: built once, by one process, into a folder that is either whole or not there.

FOLDER/<name>.lock      held while somebody builds
FOLDER/<name>.part/     what is being built; what is left of it is removed before the next build
FOLDER/<name>/          whole: one rename brought it here, after its manifest was written
    manifest.json       `Manifest`
    stamps.json         sizes and times at which the sums were last found right
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from subquad.data import digest_of
from subquad.errors import DataError
from subquad.record.files import read_json, write_json
from subquad.record.storage import building, check_own

FORMAT = 1
"""Version of the layout; part of the folder's name, so that another version never reads it."""

SEALED = "TEST: its file is read in the final evaluation; what is wrong in it shows then"
"""What `subquad data show` says of data sets that leave it closed until then."""

MANIFEST = "manifest.json"
STAMPS = "stamps.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What lies in a prepared folder.

    Attributes:
        key: what the data were made from; plain JSON values.
        format: `FORMAT` when it was written.
        files: name to {"sha256": hex, "size": bytes}.
        facts: what `build` returned: notes, counts, anything a description needs.
    """

    key: Mapping[str, Any]
    format: int
    files: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)


def prepare_once(
    folder: Path, key: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any]]
) -> Path:
    """The folder with the data of `key`, built first where it is missing or damaged.

    Safe when several processes call it: one builds, the others wait. A build that was killed is
    started anew.

    Args:
        folder: where prepared folders are kept.
        key: plain JSON values that decide every byte of the data; another key, another folder.
        build: fills the empty folder it is given, and returns plain JSON facts for the manifest.

    Raises:
        DataError: what `build` raises, or the folder cannot be written.
    """
    target = folder / prepared_name(key)
    if not fault_of(target):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{target.name}.lock"):
            if fault_of(target):
                _build(target, key, build)
        check_own(target)
    except OSError as error:
        if os.path.lexists(target):
            check_own(target)
        raise DataError(f"prepared data cannot be kept in {folder}: {error}") from error
    return target


def prepared_name(key: Mapping[str, Any]) -> str:
    """The name of the folder for `key`: 16 hexadecimal digits."""
    text = json.dumps({"format": FORMAT, "key": key}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder.

    Raises:
        DataError: there is none, or it is damaged.
    """
    data = read_json(folder / MANIFEST)
    try:
        return Manifest(**(data or {}))
    except TypeError:
        raise DataError(
            f"{folder / MANIFEST}: missing or damaged; prepare the data again"
        ) from None


def prepared_content(folder: Path, *chosen: np.ndarray | str | None) -> str:
    """What `Split.content` is to give for samples of a prepared folder: its sums, and what of it
    is chosen: a column, rows.
    """
    files = json.dumps(read_manifest(folder).files, sort_keys=True)
    return digest_of((files, *(part for part in chosen if part is not None)))


def file_content(home: Path, files: Iterable[Path]) -> str:
    """SHA-256 (hex) of files in this order, without their names: what `Dataset.test_content` is to
    give where these are read for TEST alone. It is kept in `home` until one of them changes.

    Raises:
        DataError: a file is not there.
    """
    paths = list(files)

    def build(_: Path) -> Mapping[str, Any]:
        return {"sha256": digest_of(map(sha256_of, paths))}

    key = {"content of": fingerprint(paths)}
    return read_manifest(prepare_once(home, key, build)).facts["sha256"]


def fingerprint(paths: Iterable[Path]) -> str:
    """One hash of the names, sizes and times of files: cheap, and another one where a file was
    changed, exchanged, or a link to it leads elsewhere.

    Raises:
        DataError: a file is not there.
    """
    digest = hashlib.sha256()
    for path in map(str, paths):
        try:
            stat = os.stat(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        # st_ctime_ns, the time of the last change of any kind, is what nobody can put back
        marks = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        digest.update(f"{path}\0{marks}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def check_prepared(folder: Path, *, sums: bool = False) -> Manifest:
    """The manifest, after looking at the files: sizes always, sha256 where asked or where a file's
    time changed.

    Raises:
        DataError: a file is missing or is not what was written.
    """
    if fault := fault_of(folder, sums=sums):
        raise DataError(f"{fault}; prepare the data again")
    return read_manifest(folder)


def fault_of(folder: Path, *, sums: bool = False) -> str:
    """What is wrong with a prepared folder, in words; "" where nothing is."""
    try:
        check_own(folder)
        manifest = read_manifest(folder)
        stamps = _stamps(folder, manifest)
    except (DataError, OSError) as error:
        return f"{folder}: not prepared ({error})"
    for name, file in manifest.files.items():
        if stamps[name][0] != file["size"]:
            return f"{folder / name}: {stamps[name][0]} bytes, but {file['size']} were written"
    if sums or read_json(folder / STAMPS) != stamps:
        changed = [
            name
            for name, file in manifest.files.items()
            if sha256_of(folder / name) != file["sha256"]
        ]
        if changed:
            return f"{folder / changed[0]}: changed since it was written"
        _remember(folder, stamps)
    return ""


def sha256_of(path: Path) -> str:
    """The file's sha256, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def alike(train: Path, test: Path) -> bool:
    """Whether TEST's file has TRAIN's size, as one of the same rows in any order has: worth a
    look before training.
    """
    return test.stat().st_size == train.stat().st_size


def _build(
    target: Path, key: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any]]
) -> None:
    if target.exists():
        shutil.rmtree(target)
    with building(target) as part:
        _seal(part, key, build(part))
    _sync(target.parent)


def _seal(part: Path, key: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Bring the files to the disk and write down what they are; the manifest comes last."""
    paths = sorted(path for path in part.rglob("*") if path.is_file())
    files = {path.relative_to(part).as_posix(): _describe(path) for path in paths}
    manifest = Manifest(key=dict(key), format=FORMAT, files=files, facts=dict(facts))
    _remember(part, _stamps(part, manifest))
    write_json(part / MANIFEST, asdict(manifest))
    _sync(part)


def _describe(path: Path) -> dict[str, Any]:
    _sync(path)
    return {"sha256": sha256_of(path), "size": path.stat().st_size}


def _stamps(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    stats = {name: (folder / name).stat() for name in manifest.files}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _remember(folder: Path, stamps: Mapping[str, Any]) -> None:
    try:
        write_json(folder / STAMPS, stamps)
    except OSError:  # a read-only folder: sums are taken again next time
        return


def _sync(path: Path) -> None:
    """What was written to a file, or to a folder's list of names, survives a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
