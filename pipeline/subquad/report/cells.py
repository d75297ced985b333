"""One run as the report sees it: finished, failed, stopped or without a result yet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from subquad.errors import RunError
from subquad.experiment.axes import CASE
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.report.result import Result, load_result
from subquad.report.settings import Setting, settings_of
from subquad.report.text import clean
from subquad.runs import ENVIRONMENT, EXPERIMENT, IDENTITY, STUDY, flatten, read_json, runs_below

UNFINISHED = "running/unfinished"

PROTOCOL_LABELS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened once",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened once",
    "paper": "best test accuracy over epochs, chosen on the test split",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Attributes:
        folder: its directory.
        name: its directory relative to what was asked for.
        dataset: the data set's name in tables.
        label: the mixer's name in tables; a study may name several variants of one mixer.
        mixer: the plugin's name.
        settings: what its score may depend on, by dotted key.
        varied: of a study that varies settings, what this run changes of its base, () for the base itself; else None.
        experiment: leaves of experiment.yaml by dotted key.
        environment: environment.json.
        result: result.json, None while there is none.
    """

    folder: Path
    name: str
    dataset: str
    label: str
    mixer: str
    protocol: str
    seed: int
    settings: Mapping[str, str]
    varied: Setting | None
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    result: Result | None

    @property
    def status(self) -> str:
        return self.result.status if self.result else UNFINISHED

    @property
    def counts(self) -> bool:
        """It finished and has the test score its metric asks for."""
        return self.score(self.result.metric if self.result else "") is not None

    def score(self, metric: str) -> float | None:
        """A test metric of a finished run."""
        if self.result is None or self.result.status != "finished" or self.result.test is None:
            return None
        return self.result.test.metrics.get(metric)

    def last_score(self, metric: str) -> float | None:
        """The metric at the last evaluation of a finished run, if that was on the test split."""
        last = self.result.last if self.result and self.result.status == "finished" else None
        return last.metrics.get(metric) if last and last.split == "test" else None


def read_cells(folders: Sequence[Path]) -> list[Cell]:
    """The runs of all folders, each once, in the order given.

    Raises:
        RunError: a folder is neither a run nor a study, a study has no run yet, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    root = Path(os.path.commonpath([folder.resolve().parent for folder in folders]))
    cells: dict[Path, Cell] = {}
    for folder in folders:
        found = runs_below(folder)
        if not found:
            raise RunError(f"{folder}: a study ({STUDY}) without runs so far")
        for run in found:
            cells.setdefault(run.resolve(), _read(run, root))
    return _named_like_siblings(list(cells.values()))


def _read(run: Path, root: Path) -> Cell:
    experiment = _experiment(run)
    result = load_result(run)
    axes = result.axes if result else _axes(run)
    found = _settings(run, experiment, axes)
    mixer = result.mixer if result else experiment["mixer"]["name"].rpartition(":")[2]
    train = experiment.get("train") or {}
    return Cell(
        folder=run,
        name=clean(run.resolve().relative_to(root).as_posix()),
        dataset=clean(result.dataset if result else _component(experiment["dataset"])),
        label=clean(str(axes["mixer"]) if isinstance(axes.get("mixer"), str) else mixer),
        mixer=clean(mixer),
        protocol=clean(result.protocol if result else str(experiment.get("protocol", "honest"))),
        seed=result.seed if result else int(train.get("seed", 0)),
        settings=found,
        varied=_varied(axes, found),
        experiment=flatten(experiment),
        environment=read_json(run / ENVIRONMENT) or {},
        result=result,
    )


def _axes(run: Path) -> Mapping[str, Any]:
    """Coordinates in its study of a run without a result."""
    known = (read_json(run / IDENTITY) or {}).get("axes")
    return known if isinstance(known, Mapping) else {}


def _varied(axes: Mapping[str, Any], found: Mapping[str, str]) -> Setting | None:
    changed = axes.get(CASE)
    if not isinstance(changed, Mapping):
        return None
    return tuple((clean(str(key)), clean(found.get(key, str(value)))) for key, value in sorted(changed.items()))


def _experiment(run: Path) -> dict[str, Any]:
    path = run / EXPERIMENT
    data = parse_yaml(read_text(path, str(path)), str(path)).data
    for key in ("dataset", "mixer"):
        part = data.get(key) if isinstance(data, dict) else None
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            raise RunError(f"{path}: {key}.name: missing")
    return data


def _settings(run: Path, experiment: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, str]:
    """Settings, with the hash of the mixer's file where it was given as one: another text is another mixer."""
    found = settings_of(experiment, axes)
    source = next(iter(sorted((run / "source").glob("*"))), None)
    return found if source is None else {**found, "mixer.source": source.name.partition("-")[0]}


def _component(part: Mapping[str, Any]) -> str:
    """A data set's name before its run has said what to call it."""
    chosen = part.get("params") or {}
    return " ".join([str(part["name"]), *(f"{key}={value}" for key, value in sorted(chosen.items()))])


def _named_like_siblings(cells: list[Cell]) -> list[Cell]:
    """A run without a result takes its names in the tables from a run of the same settings, or of the same data set."""
    known = {_key(cell): cell for cell in cells if cell.result}
    datasets = {_key(cell, "dataset."): cell.dataset for cell in cells if cell.result}
    named = []
    for cell in cells:
        if cell.result is None:
            twin = known.get(_key(cell))
            dataset = datasets.get(_key(cell, "dataset."), cell.dataset)
            cell = replace(cell, dataset=dataset, label=twin.label if twin else cell.label)
        named.append(cell)
    return named


def _key(cell: Cell, prefix: str = "") -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in cell.settings.items() if item[0].startswith(prefix)))
