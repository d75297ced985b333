"""What is tracked, where to, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrackedRun:
    """A run directory and how MLflow shall show it.

    Attributes:
        folder: the run directory; it may not exist yet.
        label: the MLflow run's name.
        params: the resolved experiment, flat, with dotted keys.
        tags: MLflow tags.
    """

    folder: Path
    label: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the sending process is told.

    Attributes:
        uri: the MLflow store, absolute, with its credentials.
        experiment: name of the MLflow experiment.
        artifacts: folder for artefacts where the store is a database; None: the server decides.
        runs: the runs; the cells of a study, or one. None for a search, whose trials are found in its folder.
        study: the study's folder, None for one run alone.
        search: the search's folder; then there is no study.
        poll_s: seconds between looks at metrics.jsonl.
        retry_s: seconds until a store that did not answer is tried again.
    """

    uri: str
    experiment: str
    artifacts: Path | None
    runs: tuple[TrackedRun, ...]
    study: Path | None = None
    search: Path | None = None
    poll_s: float = 2.0
    retry_s: float = 15.0

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(line: str) -> Plan:
        data = json.loads(line)
        runs = tuple(TrackedRun(**{**run, "folder": Path(run["folder"])}) for run in data.pop("runs"))
        paths = {key: data[key] and Path(data[key]) for key in ("artifacts", "study", "search")}
        return Plan(**{**data, **paths}, runs=runs)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What reached MLflow.

    Attributes:
        delivered: every record, artefact and status is there.
        pending: records that are not.
        uri: the store, without credentials; None where tracking is off.
        experiment_id: MLflow's id of the experiment.
        parent_run_id: the study's run.
        run_ids: MLflow's run ids, in the order of the runs; those that have one.
        error: why something was not delivered, one line without credentials.
    """

    delivered: bool
    pending: int = 0
    uri: str | None = None
    experiment_id: str | None = None
    parent_run_id: str | None = None
    run_ids: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Summary:
        data = json.loads(line)
        return Summary(**{**data, "run_ids": tuple(data["run_ids"])})
