"""The folder of a run, a study or a search: what lies where. Imports neither torch nor ray nor
mlflow.

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

A result.json has the manifest of the files that it stands on, so a file cannot
be exchanged unnoticed either.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from subquad.errors import RunError
from subquad.record.files import touching
from subquad.record.names import (
    ATTEMPTS,
    BEST,
    CELLS,
    EXPERIMENT,
    EXPORTED,
    IDENTITY,
    INPUTS,
    LAST,
    OPENINGS,
    PLAN,
    PREDICTIONS,
    RESULT,
    SEARCH,
    SOURCES,
    STUDY,
    TRIAL,
)
from subquad.record.sums import by_name
from subquad.security.disk import held, hold, make_folder
from subquad.suggest import to_paste

_BOUND = (
    *(EXPERIMENT, IDENTITY, INPUTS, TRIAL, ATTEMPTS, PLAN, BEST, LAST, PREDICTIONS, OPENINGS),
    *("metrics*.jsonl", "environment*.json", f"{SOURCES}/*"),
)
"""Of a run's folder: what its result stands on, its checkpoints aside."""

_MARKS = (EXPERIMENT, STUDY, SEARCH, TRIAL, IDENTITY, RESULT, EXPORTED)
"""One of them is in each folder that a command opens."""


def bound_files(run: Path) -> dict[str, Path]:
    """The files of a run's folder that its result stands on, by name, its checkpoints aside."""
    return by_name(run, (path for pattern in _BOUND for path in sorted(run.glob(pattern))))


def enter(folder: Path) -> Path:
    """Open a folder of a run, study, search or exported model, whoever made it.

    What is none of them is left, and so is what lies in an object store.

    Returns:
        its real path; as it was given where that is the same.

    Raises:
        RunError: there is a link in it, or what is neither a file nor a folder.
    """
    if isinstance(folder, Path) and any(os.path.lexists(folder / name) for name in _MARKS):
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
            raise RunError(
                f"{cell / EXPERIMENT}: missing; `{to_paste('resume', folder)}` writes it again"
            )
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


def below_root(folder: Path) -> Path:
    """A run's, study's or search's place from `--root`: `runs/NAME/STAMP...`."""
    return folder.relative_to(runs_root(folder).parent)


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
