"""One look at all runs of a driver: send what is new. Runs in the process that `Publisher` starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from subquad.tracking.contracts import Plan, Summary, TrackedRun
from subquad.tracking.courier import Courier, RunCourier, StudyCourier, started
from subquad.tracking.final import search_tags, with_search
from subquad.tracking.probe import check_server
from subquad.tracking.progress import Progress, load
from subquad.tracking.secrets import mask
from subquad.tracking.spool import unsent

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store


class Delivery:
    """Carries a plan's runs to its store, again and again until `final`."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._store: Store | None = None
        uri = mask(plan.uri)
        self._cells: list[Courier] = [
            RunCourier(run, uri, plan.experiment, cell=plan.study is not None) for run in with_search(plan)
        ]
        self._parent: Courier | None = None
        if plan.study is not None:
            head = TrackedRun(plan.study, plan.study.name, tags={"subquad.kind": "study", **search_tags(plan.study)})
            self._parent = StudyCourier(head, uri, plan.experiment, [run.folder for run in plan.runs])
        if plan.search is not None:
            from subquad.tracking.search import SearchCourier, head_of

            self._parent = SearchCourier(head_of(plan.search), uri, plan.experiment)
        self._known: set[Path] = set()

    def look(self, *, final: bool) -> str | None:
        """Send what is new; never raises.

        Returns:
            Why something could not be sent, None where all could.
        """
        try:
            self._find_trials()
            for courier in self._everyone:
                if courier.folder.exists():
                    courier.prepare()
            return self._carry(self._connected(), final)
        except Exception as error:  # whatever a server, a disk or MLflow may raise must not reach training
            self._store = None
            return reason(error)

    def summary(self, error: str | None) -> Summary:
        """What is delivered by now."""
        return summarise(self._plan, error)

    def _connected(self) -> Store:
        if self._store is None:
            check_server(self._plan.uri)
            from subquad.tracking.mlflow import connect

            self._store = connect(self._plan.uri, self._plan.experiment, self._plan.artifacts)
        return self._store

    @property
    def _everyone(self) -> list[Courier]:
        return [self._parent, *self._cells] if self._parent else self._cells

    def _find_trials(self) -> None:
        """Trials of a search that began since the last look."""
        if self._plan.search is None:
            return
        from subquad.tracking.search import TrialCourier, begun_trials

        for run in begun_trials(self._plan.search, self._known):
            self._known.add(run.folder)
            self._cells.append(TrialCourier(run, mask(self._plan.uri), self._plan.experiment, cell=True))

    def _carry(self, store: Store, final: bool) -> str | None:
        parent_id, above = None, self._run_above()
        if self._parent is not None and self._parent.started():
            parent_id = self._parent.step(store, above, final=False).run_id
        errors = [self._try(courier, store, parent_id, final) for courier in self._cells if courier.started()]
        if self._parent is not None and self._parent.started() and final:
            errors.append(self._try(self._parent, store, above, final))
        if self._plan.search is not None:
            self._cells = [courier for courier in self._cells if not courier.settled]
        return next((error for error in errors if error), None)

    def _run_above(self) -> str | None:
        """MLflow's id of the run that a study belongs to: its search, where the folder above was sent there too."""
        above = _progress_at(self._plan.study.parent, mask(self._plan.uri)) if self._plan.study else None
        return above.run_id if above and above.experiment == self._plan.experiment else None

    def _try(self, courier: Courier, store: Store, parent_id: str | None, final: bool) -> str | None:
        """One run's trouble does not keep the others back, a server that is gone does."""
        try:
            courier.step(store, parent_id, final=final)
        except Exception as error:  # as in `look`
            check_server(self._plan.uri)
            return reason(error)
        return None


def summarise(plan: Plan, error: str | None) -> Summary:
    """What is delivered, from the run directories alone; starts nothing and asks nobody."""
    uri, cell, head = mask(plan.uri), plan.study is not None, plan.study or plan.search
    runs = {run.label: run.folder for run in plan.runs}
    begun = [label for label, folder in runs.items() if started(folder, cell=cell)]
    if plan.search is not None:
        from subquad.tracking.search import begun_trials

        runs = {run.label: run.folder for run in begun_trials(plan.search)}
        begun = list(runs)
    here = {label: _progress_at(folder, uri) for label, folder in runs.items()}
    parent = _progress_at(head, uri) if head else None
    pending = sum(unsent(runs[label], one) for label, one in here.items())
    open_ones = [label for label in begun if not ((one := here[label]) and one.done)]
    heads = [one for one in (parent, *here.values()) if one and one.experiment_id]
    return Summary(
        delivered=error is None
        and not pending
        and not open_ones
        and (head is None or (parent is not None and parent.done)),
        pending=pending,
        uri=uri,
        experiment_id=heads[0].experiment_id if heads else None,
        parent_run_id=parent.run_id if parent else None,
        run_ids=tuple(one.run_id for one in here.values() if one and one.run_id),
        error=error,
    )


def _progress_at(folder: Path, uri: str) -> Progress | None:
    """A folder's progress with this store."""
    found = load(folder)
    return found if found and found.uri == uri else None


def reason(error: BaseException) -> str:
    """An exception as one line without credentials."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = mask(lines[0] if lines else "")[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
