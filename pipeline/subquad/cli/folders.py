"""Folders as commands name them: found, and said again. Nothing here imports torch."""

from __future__ import annotations

import os
from pathlib import Path

from subquad.experiment.folder import local_folder
from subquad.output.terminal import print_line
from subquad.record.trust import give


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
