"""Runs as a report sees them, read from their folders."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subquad.errors import RunError
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record.files import flatten, read_json
from subquad.record.integrity import look
from subquad.record.layout import enter, runs_below
from subquad.record.models import DATASET
from subquad.record.names import ENVIRONMENT, EXPERIMENT, IDENTITY, INPUTS, RESULT, STUDY
from subquad.reports.reported_run import Beginning, Machine, ReportedRun
from subquad.reports.text import Values, printable
from subquad.reports.tuning import Tuning, tuning_of

_FORMAT = 1
_CALLED = ("axes", "coupled", "protocol_label", "metric", "tested", "metrics")
"""What identity.json says of a run beside its names."""


def reported_runs(folders: Sequence[Path], search: Values | None = None) -> list[ReportedRun]:
    """The runs of all run and study folders, each once, in the order given.

    Args:
        search: the summary of the search whose final study they are, where it was made anew.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    root = Path(os.path.commonpath([folder.resolve().parent for folder in folders]))
    runs: dict[Path, ReportedRun] = {}
    for folder in map(enter, folders):
        found = runs_below(folder)
        if not found:
            raise RunError(f"{folder}: a study ({STUDY}) without runs so far")
        for run in found:
            if run.resolve() not in runs:
                runs[run.resolve()] = _read(run, root, tuning_of(run, search))
    return _told_apart(list(runs.values()))


def _told_apart(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """The runs; data sets of one name and with the same settings, but of other content, get a mark
    in their names.
    """
    places = {key for run in runs for entry in run.inputs.values() for key in entry.settings}
    runs = [run.model_copy(update={"places": frozenset(places)}) for run in runs]
    contents = defaultdict[tuple[Any, ...], set[str]](set)
    keys = []
    for run in runs:
        asked = {part for part in run.settings.items() if part[0].startswith("dataset.params.")}
        keys.append((run.data_label, run.protocol, frozenset(asked)))
        if DATASET in run.inputs:
            contents[keys[-1]].add(run.inputs[DATASET].mark)
    marked = []
    for run, key in zip(runs, keys, strict=True):
        if len(contents[key]) > 1 and DATASET in run.inputs:
            run = run.model_copy(
                update={
                    "data_mark": run.inputs[DATASET].mark[:6],
                    "notes": (*run.notes, f"data of other content are called {run.data_label} too"),
                }
            )
        marked.append(run)
    return marked


def _read(run: Path, root: Path, tuning: Tuning | None) -> ReportedRun:
    """Without a result, or with one that cannot be believed, what is known is how the run began."""
    leaves, begun = _begun(run)
    name = printable(run.resolve().relative_to(root).as_posix())
    own = {
        "folder": run,
        "name": name,
        "leaves": leaves,
        "environment": _machine(run),
        "inputs": read_json(run / INPUTS) or {},
        "tuning": tuning,
    }
    looked = look(run)
    own["faults"] = looked.faults
    state = {"status": "damaged" if (run / RESULT).exists() else "unfinished"}
    if looked.result is not None:
        _same_format(run / RESULT, looked.result)
        try:
            return ReportedRun.read({**looked.result, **own})
        except ValueError as error:
            state["reason"] = f"{RESULT}: {error}"
    try:
        return ReportedRun.read({**begun, **own, **state})
    except ValueError as error:
        raise RunError(f"{run / IDENTITY}: {error}") from error


def _begun(run: Path) -> tuple[Values, Values]:
    """Settings by dotted key; what a run is called, from its beginning on."""
    path = run / EXPERIMENT
    data = parse_yaml(read_text(path, str(path)), str(path)).data
    try:
        beginning = Beginning.read(data)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error
    called = {
        "mixer": beginning.mixer.name.rpartition(":")[2],
        "dataset": beginning.dataset.name.rpartition(":")[2],
        "protocol": beginning.protocol,
        "seed": beginning.train.seed,
    }
    identity = read_json(run / IDENTITY) or {}
    return flatten(data), called | {
        key: identity[key] for key in (*called, *_CALLED) if key in identity
    }


def _machine(run: Path) -> Machine:
    try:
        return Machine.read(read_json(run / ENVIRONMENT) or {})
    except ValueError:  # then it is not what the result was made of either
        return Machine()


def _same_format(path: Path, result: Values) -> None:
    found = result.get("format")
    if isinstance(found, int) and found != _FORMAT:
        raise RunError(f"{path}: result format {found!r}, this subquad reads format {_FORMAT}")
