"""What files hold, by size and sha256, and what has become of them since.

A manifest is a mapping of names to `{"bytes": N, "sha256": HEX}`. It is the key `files` of the JSON
file that is written last in its folder: manifest.json of a checkpoint, result.json of a run,
config.json of an exported model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from subquad.security.disk import opened

Manifest = dict[str, dict[str, Any]]
"""Size and sha256 of files, by name."""
_PIECE = 2**16


def sum_of(*pieces: bytes | memoryview) -> dict[str, Any]:
    """Size and sha256 of a file's content."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return {"bytes": sum(map(len, pieces)), "sha256": digest.hexdigest()}


def sum_from(stream: IO[bytes]) -> dict[str, Any]:
    """Size and sha256 of what a stream has, which is not held in memory."""
    digest = hashlib.sha256()
    size = 0
    while piece := stream.read(_PIECE):
        digest.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def sum_at(path: Path) -> dict[str, Any] | None:
    """Size and sha256 of a file, which is not held in memory; None where there is no file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with opened(path, buffering=0) as stream:
            return sum_from(stream)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def by_name(folder: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Where files are, by their names below a folder."""
    return {path.relative_to(folder).as_posix(): path for path in paths}


def manifest_of(paths: Mapping[str, Path]) -> Manifest:
    """The manifest of those files that are there.

    Args:
        paths: where each file is, by its name in the manifest.

    Raises:
        OSError: one cannot be read.
    """
    return {name: summed for name, path in paths.items() if (summed := sum_at(path)) is not None}


def change(name: str, recorded: Any, found: Mapping[str, Any] | None) -> str:
    """What has become of a file, in one line; "" where it is what it was.

    Args:
        name: what the line calls it.
        recorded: what its manifest says, which may be damaged.
        found: its size and sha256 now, None where it is not there.
    """
    if not isinstance(recorded, Mapping) or not {"bytes", "sha256"} <= recorded.keys():
        return f"{name} has no size and sha256 in its manifest"
    if found is None:
        return f"{name} is missing"
    if found["bytes"] != recorded["bytes"]:
        has = f"it has {found['bytes']} bytes, its manifest says {recorded['bytes']}"
        return f"{name} has changed: {has}"
    if found["sha256"] != recorded["sha256"]:
        return f"{name} has changed: its sha256 differs from its manifest"
    return ""
