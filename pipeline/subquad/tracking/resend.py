"""Send later what a run could not send: `subquad sync`."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from subquad.errors import ConfigError, UserError
from subquad.runs import CELLS, EXPERIMENT, flatten, is_study, read_result, runs_below
from subquad.search.folder import FINAL, SEARCH, is_search
from subquad.tracking.address import VARIABLE, artifact_folder, choose
from subquad.tracking.contracts import Plan, Summary, TrackedRun
from subquad.tracking.outcome import environment_tags
from subquad.tracking.progress import Progress, load
from subquad.tracking.publisher import Publisher
from subquad.tracking.search import read_yaml, search_of
from subquad.tracking.secrets import HIDDEN, mask


def sync(folder: Path, *, uri: str | None = None, timeout: float = 600.0) -> Summary:
    """Bring everything of a run, study or search to MLflow; doing it twice sends nothing twice.

    Args:
        folder: a run, a study, one cell of a study, a search with all its trials and its final study, or one trial,
            with which its whole search is sent.
        uri: the store; None: where the run was tracked, else what the experiment or the environment says.
        timeout: most seconds this may take.

    Raises:
        RunError: the folder is neither a run nor a study nor a search.
        ConfigError: the address is no store, or its password is not known here.
        UserError: MLflow is not installed.
    """
    whole = folder.resolve()
    search = whole if is_search(whole) else search_of(whole)
    runs = [] if search else [run.resolve() for run in runs_below(folder)]
    if find_spec("mlflow") is None:
        raise UserError("subquad sync needs MLflow: pip install 'subquad[mlflow]'")
    if search is None:
        return Publisher(plan_of(whole, runs, uri)).close(timeout=timeout)
    first = Publisher(plan_of_search(search, uri)).close(timeout=timeout)
    if not is_study(search / FINAL):
        return first
    last = Publisher(plan_of(search / FINAL, runs_below(search / FINAL), uri)).close(timeout=timeout)
    return replace(
        first,
        delivered=first.delivered and last.delivered,
        pending=first.pending + last.pending,
        run_ids=first.run_ids + last.run_ids,
        error=first.error or last.error,
    )


def plan_of_search(search: Path, uri: str | None) -> Plan:
    """What is to be sent of a search without its final study, from its folder alone."""
    settings = read_yaml(search / SEARCH).get("experiment") or {}
    tracking, tracked, root = settings.get("tracking") or {}, load(search), _root(search)
    store = _store(uri, tracked, tracking.get("uri"), root)
    name = tracked.experiment if tracked else tracking.get("experiment") or settings.get("name") or search.name
    return Plan(uri=store, experiment=str(name), artifacts=artifact_folder(store, root), runs=(), search=search)


def plan_of(folder: Path, runs: list[Path], uri: str | None) -> Plan:
    """What is to be sent, from the folders alone."""
    study = folder if is_study(folder) else _study_of(folder)
    first = runs[0] if runs else folder
    settings = read_yaml(first / EXPERIMENT)
    tracking = settings.get("tracking") or {}
    tracked = (load(study) if study else None) or load(first)
    root = _root(study or folder)
    store = _store(uri, tracked, tracking.get("uri"), root)
    experiment = tracked.experiment if tracked else tracking.get("experiment") or settings.get("name") or folder.name
    return Plan(
        uri=store,
        experiment=str(experiment),
        artifacts=artifact_folder(store, root),
        runs=tuple(_tracked_run(run) for run in runs),
        study=study,
    )


def _store(given: str | None, tracked: Progress | None, configured: str | None, root: Path) -> str:
    """Given, then where it was tracked, then configured, then the environment, then sqlite beside the runs."""
    if given is not None:
        return choose(given, Path.cwd(), key="--uri")
    if tracked is None:
        return choose(configured, root)
    if HIDDEN not in tracked.uri:
        return tracked.uri
    candidates = (os.environ.get(VARIABLE), configured)
    known = next((one for one in candidates if one and mask(choose(one, root)) == tracked.uri), None)
    if known is None:
        raise ConfigError(
            f"{tracked.uri}: this address had a user and a password, which are never saved; "
            f"give --uri or set {VARIABLE}"
        )
    return choose(known, root)


def _tracked_run(run: Path) -> TrackedRun:
    """As the run was tracked; where it never was, from its files."""
    tracked = load(run)
    if tracked is not None:
        return TrackedRun(run, tracked.label, tracked.params, tracked.tags)
    result = read_result(run) or {}
    return TrackedRun(
        run, str(result.get("label") or run.name), flatten(read_yaml(run / EXPERIMENT)), environment_tags(run)
    )


def _study_of(run: Path) -> Path | None:
    return run.parents[1] if run.parent.name == CELLS and is_study(run.parents[1]) else None


def _root(folder: Path) -> Path:
    """The folder that holds `runs/`; the folder's own parent where there is no such."""
    above = next((parent for parent in folder.parents if parent.name == "runs"), None)
    return above.parent if above else folder.parent
