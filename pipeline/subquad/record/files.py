"""JSON files of runs: small readers and writers.

Each JSON object and each JSON line has a `check`, a digest of its other values: what was damaged or
edited is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from subquad.errors import DiskError, RunError
from subquad.record.models import File
from subquad.security.disk import opened, replacing
from subquad.security.strict_json import MAX_BYTES, parse_json

_CHECK = "check"
_File = TypeVar("_File", bound=File)


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


def write_text(path: Path, text: str | bytes) -> None:
    """Replace a small file whole: a reader sees the old or the new text, also after a crash."""
    with touching(path), replacing(path) as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())


def write_output(path: Path, text: str) -> None:
    """Write a file that the user names, which may also be a device or a pipe, such as
    /dev/stdout.
    """
    if path.exists() and not path.is_file():
        with touching(path), open(path, "wb") as stream:
            stream.write(text.encode())
    else:
        write_text(path, text)


def to_disk(stream: IO[str]) -> None:
    """Bring what was written to the disk."""
    stream.flush()
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
    return json.dumps(_checked(data), indent=2, sort_keys=True, allow_nan=False) + "\n"


def json_line(data: Mapping[str, Any]) -> str:
    return json.dumps(_checked(data), allow_nan=False) + "\n"


def _checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values with the check of them."""
    values = json_value(data)
    values.pop(_CHECK, None)
    values[_CHECK] = _check_of(values)
    return values


def _check_of(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]  # half a character has no form in it


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
        ValueError: it is no strict JSON object, or has changed since it was written.
    """
    with opened(path) as stream:
        return parse_object(stream.read(MAX_BYTES + 1))


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where the file is missing, torn or damaged."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return None


def read_file(kind: type[_File], folder: Path, name: str = "") -> _File:
    """A file of a folder.

    Args:
        name: of the file, where it has not that of its kind.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no strict JSON object, has changed since it was written, or is not what
            its kind of file has.
    """
    return kind.read(read_object(folder / (name or kind.FILE)))


def find_file(kind: type[_File], folder: Path, name: str = "") -> _File | None:
    """A file of a folder, None where it is missing, torn, damaged or not what its kind of file
    has.
    """
    try:
        return read_file(kind, folder, name)
    except (OSError, ValueError):
        return None


def write_file(folder: Path, file: File, name: str = "") -> None:
    """Replace a file of a folder whole, with what it was given."""
    write_json(folder / (name or file.FILE), file.model_dump(exclude_unset=True))


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
