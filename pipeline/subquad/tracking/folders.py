"""What a folder is to a tracker: a run, a trial, or the parent of such, a study or search. A
search's final study is below the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record.files import read_json
from subquad.record.layout import is_study, runs_below, runs_root
from subquad.record.names import (
    ATTEMPTS,
    CELLS,
    FINAL,
    IDENTITY,
    METRICS,
    RESULT,
    SEARCH,
    STUDY,
    TRIAL,
    TRIALS,
)
from subquad.tracking.values import Values

SENDING = ".mlflow.lock"
"""Locked while a folder is sent; then it stays, in a folder that was sent."""


def begun(folder: Path) -> bool:
    """Whether there is anything to send yet of what is below a study or search, which writes the
    settings of all its runs first.
    """
    names = (STUDY, ATTEMPTS, METRICS, RESULT)
    is_there = any((folder / name).exists() for name in names)
    return is_there or "state" in (read_json(folder / TRIAL) or {})


def parts_in(folder: Path) -> list[Path] | None:
    """What is directly below a study or search; None for a run or trial.

    Raises:
        RunError: the folder is none of these.
    """
    if (folder / SEARCH).exists():
        trials = sorted(folder.glob(f"{TRIALS}/*/*/{TRIAL}"))
        finals = folder.glob(f"{FINAL}/{STUDY}")
        return [path.parent for path in (*trials, *finals)]
    if (folder / TRIAL).exists():
        return None
    below = runs_below(folder)
    return None if below == [folder] else below


def parts_below(folder: Path) -> Iterator[Path]:
    """The folder, and all below it that began."""
    yield folder
    for part in parts_in(folder) or ():
        if begun(part):
            yield from parts_below(part)


def parent_of(folder: Path) -> Path | None:
    """The study or search that a run, trial or final study belongs to."""
    parent = folder.parent
    if (folder / TRIAL).exists() and len(folder.parents) > 2:
        return folder.parents[2]
    if parent.name == CELLS and is_study(parent.parent):
        return parent.parent
    if folder.name == FINAL and (parent / SEARCH).exists():
        return parent
    return None


def whole_of(folder: Path) -> Path:
    """What is sent together: a run, a study, or a search; of a part of one, the whole."""
    above = parent_of(folder)
    return whole_of(above) if above else folder


def key_of(whole: Path) -> str:
    """What finds the run of a folder again in any store, also where both were moved: it stands in
    the folder's name, and in the digest of a run.
    """
    identity = read_json(whole / IDENTITY) or {}
    digest = identity.get("digest")
    return hashlib.sha256(f"{whole.name} {digest}".encode()).hexdigest()[:32]


def root_above(folder: Path) -> Path:
    """The folder that holds `runs/`; the folder's own parent where there is no such."""
    above = runs_root(folder)
    return above.parent if above.name == "runs" else above


def read_yaml(path: Path) -> Values:
    """A mapping; an empty one where the file is missing or holds none.

    Raises:
        ConfigError: it is not strict YAML.
    """
    if not path.exists():
        return {}
    name = str(path)
    data = parse_yaml(read_text(path, name), name).data
    return data if isinstance(data, dict) else {}
