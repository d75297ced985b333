"""A run's mlflow.json: which MLflow run it is, and how much of it MLflow has."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from subquad.runs import TRACKING, read_json, write_json
from subquad.tracking.names import params as ready_params
from subquad.tracking.names import tags as ready_tags


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far one run is with one store.

    Attributes:
        uri: the store, without credentials.
        experiment: name of the MLflow experiment.
        label: the MLflow run's name.
        key: made once for a run directory; finds its MLflow run in any store, also when the answer to its creation
            was lost or the database was moved.
        params: parameters, as MLflow takes them.
        tags: tags, as MLflow takes them.
        experiment_id: MLflow's id.
        run_id: MLflow's id; None until the run exists there.
        parent_run_id: MLflow's id of the study's run.
        described: the store has `params` and `tags`.
        sent: records of metrics.jsonl that were dealt with.
        last: digest of the last one of these; tells whether metrics.jsonl was cut since.
        steps: highest step sent of each stream (a kind and split).
        floor: after a cut, the steps that the store had already; they are not sent again.
        noted: tags that keep their first value.
        closed: digest of the result the MLflow run was closed with.
        reopened: it went on after that; the old result, still there, is not its end.
        done: everything there is was delivered.
        elsewhere: the same for other stores this run was sent to.
    """

    uri: str
    experiment: str
    label: str
    key: str
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    experiment_id: str | None = None
    run_id: str | None = None
    parent_run_id: str | None = None
    described: bool = False
    sent: int = 0
    last: str = ""
    steps: Mapping[str, int] = field(default_factory=dict)
    floor: Mapping[str, int] = field(default_factory=dict)
    noted: tuple[str, ...] = ()
    closed: str = ""
    reopened: bool = False
    done: bool = False
    elsewhere: tuple[Mapping[str, Any], ...] = ()


def load(folder: Path) -> Progress | None:
    """A folder's progress, None where it has none or an unreadable one."""
    data = read_json(folder / TRACKING)
    return None if data is None else _parse(data)


def save(folder: Path, progress: Progress) -> Progress:
    """Write mlflow.json whole, and hand the progress on."""
    write_json(folder / TRACKING, asdict(progress))
    return progress


def begin(
    old: Progress | None, *, uri: str, experiment: str, label: str, params: Mapping[str, Any], tags: Mapping[str, Any]
) -> Progress:
    """Progress to go on from: the old one of this store, with what the run says of itself now.

    Args:
        old: what mlflow.json holds.
        uri: the store, without credentials.
        experiment: name of the MLflow experiment.
        label: the MLflow run's name.
        params: parameters as given.
        tags: tags as given.
    """
    ready, cut = ready_params(params)
    said = {"experiment": experiment, "label": label, "params": ready, "tags": {**ready_tags(tags), **cut}}
    now = _for_store(old, uri, said)
    same = all(getattr(now, key) == value for key, value in said.items())
    return now if same else replace(now, **said, described=False)


def recreated(progress: Progress, run_id: str, parent_run_id: str | None) -> Progress:
    """Progress of an MLflow run that was just made and holds nothing."""
    fresh = Progress(
        uri=progress.uri,
        experiment=progress.experiment,
        label=progress.label,
        key=progress.key,
        params=progress.params,
        tags=progress.tags,
        elsewhere=progress.elsewhere,
    )
    return replace(fresh, run_id=run_id, parent_run_id=parent_run_id)


def _for_store(old: Progress | None, uri: str, said: Mapping[str, Any]) -> Progress:
    """The old progress if it is of this store, else the one kept aside, else a new one."""
    if old is not None and old.uri == uri and old.experiment == said["experiment"]:
        return old
    known = [dict(entry) for entry in old.elsewhere] if old else []
    here = next((e for e in known if (e.get("uri"), e.get("experiment")) == (uri, said["experiment"])), None)
    others = [entry for entry in known if entry is not here]
    if old is not None and old.run_id is not None:
        others.append({**asdict(old), "elsewhere": ()})
    found = _parse(here) if here else None
    found = found or Progress(uri=uri, key=old.key if old else uuid.uuid4().hex, **said)
    return replace(found, elsewhere=tuple(others))


def _parse(data: Mapping[str, Any]) -> Progress | None:
    try:
        return TypeAdapter(Progress).validate_python(data)
    except ValidationError:
        return None
