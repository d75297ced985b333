"""The run directory: what lies where, and small readers and writers for it. Imports neither torch
nor ray nor mlflow.

runs/<name>/<stamp>-<hash>/        a run, or a study with runs below cells/
    experiment.yaml                the experiment, fully resolved (a study: study.yaml)
    inputs.json                    digests of what it reads, see `subquad.engine.inputs`
    environment.json               versions, plugin distributions, hardware, git commit
    metrics.jsonl                  one `Record` a line; metrics-2.jsonl those of the second attempt
    attempts.jsonl                 one line for each start: step it started from, processes,
                                   threads, time
    checkpoints/step-00001200/     see `subquad.engine.checkpoint`
    best.json  last.json           which step, with its metrics
    result.json                    written once, at the end
    predictions.safetensors        per-sample arrays of the final evaluation
    test-openings.jsonl            openings of the test split; one of the same name lies beside
                                   all runs
    source/                        the files of plugins that are given as a file
    cells/<label>/                 a study's runs

Each JSON object and each JSON line has a `check`, a digest of its other values: what was damaged or
edited is noticed. A result.json has the manifest of the files that it stands on, so a file cannot
be exchanged unnoticed either.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, Any, cast

from pydantic import TypeAdapter
from upath import UPath

from subquad import shapes
from subquad.errors import DiskError, RunError
from subquad.record.sums import by_name, manifest_of
from subquad.security.disk import held, hold, make_folder, opened, replacing
from subquad.security.strict_json import MAX_BYTES, parse_json, shaped
from subquad.suggest import to_paste

EXPERIMENT = "experiment.yaml"
STUDY = "study.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
ATTEMPTS = "attempts.jsonl"
RESULT = "result.json"
DIAGNOSIS = "diagnosis.json"
BEST = "best.json"
LAST = "last.json"
CHECKPOINTS = "checkpoints"
PREDICTIONS = "predictions.safetensors"
PLAN = "plan.json"
ERROR = "error.txt"
LOCK = "lock"
STOP = "stop"
CELLS = "cells"
SEARCH = "search.yaml"
TRIAL = "trial.json"
SUMMARY = "search.json"
TRIALS = "trials"
JOURNAL = "trials.jsonl"
FINAL = "final"
WINNERS = "best"
OWNER = "owner.json"
IDENTITY = "identity.json"
INPUTS = "inputs.json"
OPENINGS = "test-openings.jsonl"
SOURCES = "source"
EXPORTED = "config.json"

_CHECK = "check"
_BOUND = (
    *(EXPERIMENT, IDENTITY, INPUTS, TRIAL, ATTEMPTS, PLAN, BEST, LAST, PREDICTIONS, OPENINGS),
    *("metrics*.jsonl", "environment*.json", f"{SOURCES}/*"),
)
"""Of a run's folder: what its result stands on, its checkpoints aside."""

_MARKS = (EXPERIMENT, STUDY, SEARCH, TRIAL, IDENTITY, RESULT, EXPORTED)
"""One of them is in each folder that a command opens."""
_SHAPES = {
    RESULT: TypeAdapter(shapes.ResultFile),
    IDENTITY: TypeAdapter(shapes.IdentityFile),
    INPUTS: TypeAdapter(dict[str, shapes.Input]),
    ENVIRONMENT: TypeAdapter(shapes.EnvironmentFile),
    TRIAL: TypeAdapter(shapes.TrialFile),
    SUMMARY: TypeAdapter(shapes.SearchFile),
    OWNER: TypeAdapter(shapes.OwnerFile),
}
"""Of files that more than one module reads; others are held against a type where they are read."""


def json_value(data: Any) -> Any:
    """JSON values with non-finite floats as the strings NaN, Infinity and -Infinity, which `float`
    reads back.

    What has no form in JSON becomes text, and half a character (of a file's name) an escape.
    """
    if isinstance(data, Mapping):
        return {_text(key): json_value(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [json_value(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return json.dumps(data)
    if data is None or isinstance(data, (int, float)):
        return data
    return _text(data)


def _text(data: Any) -> str:
    return str(data).encode("utf-8", "backslashreplace").decode()


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys; an empty mapping stays a value."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


@contextmanager
def touching(path: Path) -> Iterator[None]:
    """What the system refuses to do with a file of a run is a user's error, in one line: a full
    disk, a folder there.

    Raises:
        RunError: the path and the reason; a DiskError where the disk is full or cannot be written.
    """
    try:
        yield
    except OSError as error:
        kind = DiskError if error.errno in DiskError.reasons else RunError
        raise kind(f"{path}: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Replace a small file whole: a reader sees the old or the new text, also after a crash."""
    content = text.encode()
    with touching(path):
        if not isinstance(path, Path):  # another machine replaces a file whole
            path.write_bytes(content)
            return
        with replacing(path) as stream:
            stream.write(content)


def write_output(path: Path, text: str) -> None:
    """Write a file that the user names, which may also be a device or a pipe, such as
    /dev/stdout.
    """
    if path.exists() and not path.is_file():
        with touching(path), open(path, "wb") as stream:
            stream.write(text.encode())
        return
    write_text(path, text)


def to_disk(stream: IO[str]) -> None:
    """Bring what was written to the disk; a file of another machine is there once it is flushed."""
    stream.flush()
    with suppress(UnsupportedOperation):
        os.fsync(stream.fileno())


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """Add a JSON line; when this returns it is on the disk."""
    with touching(path), opened(path, "a", encoding="utf-8") as stream:
        stream.write(json_line(data))
        to_disk(stream)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file whole; see `json_value` for non-finite numbers."""
    write_text(path, json_text(data))


def json_text(data: Mapping[str, Any]) -> str:
    """A JSON object with its check, as files have it."""
    text = json.dumps(_checked(data), indent=2, sort_keys=True, allow_nan=False)
    return f"{text}\n"


def json_line(data: Mapping[str, Any]) -> str:
    text = json.dumps(_checked(data), allow_nan=False)
    return f"{text}\n"


def _checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values with the check of them."""
    values = json_value(data)
    values.pop(_CHECK, None)
    values[_CHECK] = _check_of(values)
    return values


def _check_of(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)
    content = text.encode()  # in which half a character has no form
    return hashlib.sha256(content).hexdigest()[:16]


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object without its check.

    Raises:
        ValueError: it is no strict JSON object, or it has changed since it was written.
    """
    data = parse_json(text)
    if not isinstance(data, dict):
        raise ValueError("no JSON object")
    if data.pop(_CHECK, None) != _check_of(data):
        raise ValueError("it was damaged or edited: its `check` does not fit its values")
    return data


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file, without its check.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no strict JSON object, has changed since it was written, or has not the
            shape of its file.
    """
    with opened(path) as stream:
        text = stream.read(MAX_BYTES + 1)
    data = parse_object(text)
    shape = _SHAPES.get(path.name)
    if shape:
        shaped(data, shape)
    return data


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where the file is missing, torn, damaged or not what a run has
    there.
    """
    try:
        return read_object(path)
    except (OSError, ValueError):
        return None


def read_bytes(path: Path) -> bytes:
    """The content of a file of a run, see `subquad.security.disk`.

    Raises:
        OSError: it cannot be read.
        RunError: it is a link.
    """
    with opened(path) as stream:
        return stream.read()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines; damaged lines are left out, none where there is no file.

    Raises:
        RunError: it cannot be read.
    """
    found: list[dict[str, Any]] = []
    with touching(path):
        content = read_bytes(path) if path.exists() else b""
    for line in content.splitlines():
        with suppress(ValueError):
            found.append(parse_object(line))
    return found


def read_result(run: Path) -> dict[str, Any] | None:
    """A run's result.json, None while there is none. Keys: docs/reference/run-directory.md."""
    return read_json(run / RESULT)


def write_result(run: Path, result: Mapping[str, Any], *more: Path) -> None:
    """End a run, with the manifest of the files that its result stands on.

    Args:
        more: files of its checkpoints that belong to them.
    """
    paths = bound_files(run)
    for path in more:
        paths[f"{CHECKPOINTS}/{path.parent.name}/{path.name}"] = path
    with touching(run):
        files = manifest_of(paths)
    write_json(run / RESULT, {**result, "files": files})


def bound_files(run: Path) -> dict[str, Path]:
    """The files of a run's folder that its result stands on, by name, its checkpoints aside."""
    found = {}
    for pattern in _BOUND:
        found |= by_name(run, sorted(run.glob(pattern)))
    return found


def path_at(address: str) -> Path:
    """A path, also of another file system (`driver:///...`), which has `pathlib`'s methods."""
    if "://" in address:
        return cast("Path", UPath(address))
    return Path(address)


def enter(folder: Path) -> Path:
    """Open a folder of a run, study, search or exported model, whoever made it.

    What is none of them is left, and so is what lies on another machine.

    Returns:
        its real path; as it was given where that is the same.

    Raises:
        RunError: there is a link in it, or what is neither a file nor a folder.
    """
    if not isinstance(folder, Path):
        return folder
    if any(os.path.lexists(folder / name) for name in _MARKS):
        return held(folder)
    return folder


def is_study(folder: Path) -> bool:
    return (folder / STUDY).exists()


def is_run(folder: Path) -> bool:
    return (folder / EXPERIMENT).exists()


def runs_below(folder: Path) -> list[Path]:
    """The runs of a study in cell order, or the run itself.

    Raises:
        RunError: the folder is neither.
    """
    if is_run(folder) and not is_study(folder):
        return [folder]
    if not is_study(folder):
        raise RunError(f"{folder}: neither a run (no {EXPERIMENT}) nor a study (no {STUDY})")
    cells = []
    for cell in sorted((folder / CELLS).glob("*")):
        if is_run(cell):
            cells.append(cell)
        elif (cell / IDENTITY).exists():
            again = to_paste("resume", folder)
            raise RunError(f"{cell / EXPERIMENT}: missing; `{again}` writes it again")
    return cells


def runs_root(folder: Path) -> Path:
    """The folder `runs` above a run's, study's or search's; one moved away from there has the
    folder beside itself.
    """
    for parent in folder.parents:
        if parent.name == "runs":
            return parent
    if folder.parent.name == CELLS:
        folder = folder.parent.parent
    return folder.parent


def new_folder(root: Path, name: str, digest: str) -> Path:
    """Make `root/name/<stamp>-<hash>`, a folder nobody else has.

    Raises:
        RunError: it cannot be made.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    above = root / name
    first = f"{stamp}-{digest[:8]}"
    for own in (first, *(f"{first}.{number}" for number in range(2, 1000))):
        folder = above / own
        with touching(folder), suppress(FileExistsError):
            make_folder(folder)
            hold(folder)
            return folder
    raise RunError(f"{above}: a thousand runs started in the same second")
