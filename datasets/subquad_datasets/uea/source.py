"""Where the files of a problem are: a folder of the user's, sktime's package data, or what was
downloaded.

TRAIN and TEST are always named; a loader that takes "the first .ts in the folder" can end up
training on TEST. sktime is found, not imported: its import takes seconds and its files and list of
names are just files.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
from dataclasses import dataclass
from pathlib import Path

from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import find_file, listed
from subquad_datasets.uea.lines import SUFFIXES


@dataclass(frozen=True)
class Files:
    """The files of one problem.

    Attributes:
        problem: the name that was asked for.
        stem: what the files are called, without _TRAIN.ts.
        train: the TRAIN file.
        test: the TEST file, None where there is none.
    """

    problem: str
    stem: str
    train: Path
    test: Path | None


def find_in(folder: Path, problem: str) -> Files | None:
    """`<problem>_TRAIN.ts` in the folder, or the only `*_TRAIN.ts` of a folder named after the
    problem.
    """
    stems = _stems(folder)
    if problem in stems:
        stem = problem
    elif folder.name == problem and len(stems) == 1:
        stem = stems[0]
    else:
        return None
    train = _file(folder, f"{stem}_TRAIN")
    if train:
        return Files(problem, stem, train, _file(folder, f"{stem}_TEST"))
    return None


def find_below(path: Path, problem: str) -> Files:
    """The files under a folder that the user gave.

    Raises:
        DataError: no such folder, or no TRAIN file of that name in it.
    """
    if not path.is_dir():
        raise DataError(f"dataset.params.path: {path} is not a folder")
    files = find_in(path / problem, problem) or find_in(path, problem)
    if files is None:
        here = [entry.name for entry in listed(path) if os.path.isdir(entry)] + _stems(path)
        raise DataError(
            f"dataset.params.path: {path} has neither {problem}/{problem}_TRAIN.ts nor "
            f"{problem}_TRAIN.ts (endings "
            f"{', '.join(SUFFIXES)}){did_you_mean(problem, here) or _longer(problem, here)}"
        )
    return files


def _longer(problem: str, here: list[str]) -> str:
    """A name that goes on after the one given: Heartbeat_train204 for Heartbeat."""
    longer = sorted(name for name in here if name.lower().startswith(problem.lower()))
    if longer:
        return f"; did you mean {longer[0]!r}?"
    return ""


def bundled_folder() -> Path | None:
    """sktime's folder of package data, None where sktime is not installed."""
    package = _sktime()
    if package:
        return package / "datasets" / "data"
    return None


def bundled_problems() -> list[str]:
    """Classification problems that ship with sktime."""
    folder = bundled_folder()
    if folder:
        return [entry.name for entry in listed(folder) if find_in(folder / entry.name, entry.name)]
    return []


def archive_problems() -> list[str]:
    """Multivariate problems of the archive, as sktime lists them."""
    package = _sktime()
    if package:
        names = package / "datasets" / "tsc_dataset_names.py"
    else:
        names = None
    if names and names.is_file():
        return list(runpy.run_path(str(names))["multivariate"])
    return []


def not_here(problem: str) -> DataError:
    """The error for a problem that is neither bundled, downloaded nor under a given path."""
    give = f"give dataset.params.path=FOLDER with {problem}_TRAIN.ts"
    if _sktime() is None:
        return DataError(
            f"uea problem {problem!r}: install sktime (pip install 'subquad[uea]') or {give}"
        )
    bundled = bundled_problems()
    archive = archive_problems()
    if problem in archive:
        ours = " and ".join(name for name in bundled if name in archive)
        here = f"only {ours} ship with sktime"
        return DataError(
            f"uea problem {problem!r} is not here ({here}): {give}, or dataset.params.download=true"
        )
    return DataError(
        f"unknown uea problem {problem!r}{did_you_mean(problem, [*archive, *bundled])}; "
        f"for files of your own {give}"
    )


def _stems(folder: Path) -> list[str]:
    endings = tuple(f"_TRAIN{suffix}" for suffix in SUFFIXES)
    names = [entry.name for entry in listed(folder) if os.path.isfile(entry)]
    return sorted({name.rpartition("_TRAIN")[0] for name in names if name.endswith(endings)})


def _file(folder: Path, name: str) -> Path | None:
    return find_file(folder, name, endings=SUFFIXES)


def _sktime() -> Path | None:
    spec = importlib.util.find_spec("sktime")
    if spec and spec.origin:
        return Path(spec.origin).parent
    return None
