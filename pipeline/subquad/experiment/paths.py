"""Paths in an experiment: made absolute while it is still known what they are relative to."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.experiment.origins import KeyPath, Marks, origin_of


def absolute(value: str, folder: Path) -> str:
    """An absolute path; `~` is the home folder. An address (`s3://...`) and empty text stay as they are."""
    if not value or "://" in value:
        return value
    return os.path.normpath(os.path.join(os.path.abspath(folder), os.path.expanduser(value)))


def path_fields(config: type[BaseModel]) -> tuple[str, ...]:
    """The parameters of a plugin that are declared as paths."""
    extras = ((name, field.json_schema_extra) for name, field in config.model_fields.items())
    return tuple(name for name, extra in extras if isinstance(extra, dict) and extra.get("path"))


def absolute_params(
    config: type[BaseModel], params: Mapping[str, Any], path: KeyPath, marks: Marks | None, base: Path
) -> dict[str, Any]:
    """`params` with every path absolute, against the folder of whoever gave it.

    Args:
        config: the plugin's parameters.
        params: what was given.
        path: where `params` stands in the experiment.
        marks: origins.
        base: for values whose origin has no folder.
    """
    fields = {name for name in path_fields(config) if isinstance(params.get(name), str)}
    return {
        name: absolute(value, folder_of((*path, name), marks, base)) if name in fields else value
        for name, value in params.items()
    }


def absolute_mixer(name: str, marks: Marks | None, base: Path) -> str:
    """The name of a mixer in a file, `./file.py:Class`, with the file's path absolute; other names as they are."""
    file, colon, attribute = name.rpartition(":")
    if not file.endswith(".py"):
        return name
    return f"{absolute(file, folder_of(('mixer', 'name'), marks, base))}{colon}{attribute}"


def folder_of(path: KeyPath, marks: Marks | None, base: Path) -> Path:
    origin = origin_of(path, marks)
    return origin.folder if origin and origin.folder else base
