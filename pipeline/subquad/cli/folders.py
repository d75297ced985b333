"""Folders as commands name them: found, tried, and said again. Nothing here imports torch."""

from __future__ import annotations

import os
from pathlib import Path

from subquad.drivers.folder import local_folder
from subquad.errors import RunError
from subquad.record.trust import give
from subquad.security.disk import delete, make_folder, opened, temporary_beside
from subquad.terminal import print_line


def writable(root: Path) -> Path:
    """An absolute folder that files can be made in.

    Raises:
        RunError: it cannot be written.
    """
    root = root.resolve()
    try:
        make_folder(root / "runs", exist_ok=True)
        probe = temporary_beside(root / "runs" / "probe")
        with opened(probe, "xb"):
            delete(probe)
    except OSError as error:
        raise RunError(f"--root {root}: {error.strerror}: runs cannot be written there") from error
    return root


def found(run: str, root: Path = Path()) -> Path:
    """The folder of a run, study or search, fetched where its address in storage is given, which
    is told.
    """
    if root != Path():
        give(str(root.absolute()))
    give(os.path.abspath(run) if "://" not in run else run)
    return local_folder(run, root, lambda text: print_line(text, err=True))


def short(path: Path) -> str:
    """A path as the user would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
