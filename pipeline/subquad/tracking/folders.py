"""What a folder is to a tracker: a run, a trial, or the parent of such, a study or search. A
search's final study is below the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record import names
from subquad.record.files import find_file
from subquad.record.layout import runs_root
from subquad.record.models import Identity, TrialFile

Values = dict[str, Any]
"""Plain values by name, as JSON has them."""
SENDING = ".mlflow.lock"
"""Locked while a folder is sent; then it stays, in a folder that was sent."""
_BELOW = {
    f"{names.TRIALS}/*/*": names.SEARCH,
    names.FINAL: names.SEARCH,
    f"{names.CELLS}/*": names.STUDY,
}
"""Where the parts of a study or search are, and the file that says that it is one."""
_BEGUN = (names.STUDY, names.ATTEMPTS, names.METRICS, names.RESULT)


def parts_in(folder: Path) -> list[Path]:
    """What is directly below a study or search and has begun: these write the settings of all
    their runs first. A run or trial has no parts.
    """
    return [
        part
        for pattern, mark in _BELOW.items()
        if (folder / mark).exists()
        for part in sorted(folder.glob(pattern))
        if _has_begun(part)
    ]


def _has_begun(folder: Path) -> bool:
    trial = find_file(TrialFile, folder)
    return any((folder / name).exists() for name in _BEGUN) or bool(trial and trial.state)


def parts_below(folder: Path) -> Iterator[Path]:
    """The folder, and all below it that began."""
    yield folder
    for part in parts_in(folder):
        yield from parts_below(part)


def whole_of(folder: Path) -> Path:
    """What is sent together: a run, a study, or a search; of a part of one, the whole."""
    for pattern, mark in _BELOW.items():
        if folder.match(pattern):
            above = folder.parents[pattern.count("/")]
            if (above / mark).exists():
                return whole_of(above)
    return folder


def key_of(whole: Path) -> str:
    """What finds the run of a folder again in any store, also where both were moved: it stands in
    the folder's name, and in the digest of a run.
    """
    identity = find_file(Identity, whole)
    text = f"{whole.name} {identity.digest if identity else None}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


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
