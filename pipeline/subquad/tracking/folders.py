"""What a folder is to MLflow: a run, a trial, or the parent of such, a study or search.

A parent is one MLflow run, and each run or trial below its folder is a child of that, found while
the folder grows. A search's final study is below the search.
"""

from __future__ import annotations

from pathlib import Path

from subquad import runs
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.runs import read_json
from subquad.tracking.values import Values


def begun(folder: Path) -> bool:
    """Whether there is anything to send yet. A study writes the settings of all its runs first."""
    for name in (runs.SEARCH, runs.STUDY, runs.ATTEMPTS, runs.METRICS, runs.RESULT):
        if (folder / name).exists():
            return True
    trial = folder / runs.TRIAL
    if trial.exists():
        return "state" in (read_json(trial) or {})
    if parent_of(folder):
        return False
    return runs.is_run(folder)


def folders_below(folder: Path) -> list[Path] | None:
    """Folders that are MLflow runs below a study or search; a run has none."""
    if (folder / runs.SEARCH).exists():
        trials = folder.glob(f"{runs.TRIALS}/*/*/{runs.TRIAL}")
        return sorted([path.parent for path in trials])
    if runs.is_study(folder):
        return runs.runs_below(folder)
    return None


def parent_of(folder: Path) -> Path | None:
    """The study or search that a run, trial or final study belongs to."""
    parent = folder.parent
    study = parent.parent
    is_trial = (folder / runs.TRIAL).exists()
    if is_trial and len(folder.parents) > 2:
        return folder.parents[2]
    if parent.name == runs.CELLS and runs.is_study(study):
        return study
    is_in_search = (parent / runs.SEARCH).exists()
    if is_in_search and folder.name == runs.FINAL:
        return parent
    return None


def parts_of(folder: Path) -> list[Path]:
    """What is sent together: a run, a study, or a search and its final study; of a part of one, the
    whole.

    Raises:
        RunError: the folder is none of these.
    """
    is_search = (folder / runs.SEARCH).exists()
    is_trial = (folder / runs.TRIAL).exists()
    if not is_search and not is_trial:
        runs.runs_below(folder)
    whole = folder
    if not runs.is_study(folder):
        whole = parent_of(folder) or folder
    final = whole / runs.FINAL
    if runs.is_study(final) and (whole / runs.SEARCH).exists():
        return [whole, final]
    return [whole]


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
