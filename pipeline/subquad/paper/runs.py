"""Which runs a table's cells need, and which of them are there: cells that are one experiment have
one run, whichever study trained it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from subquad.errors import UserError, and_more
from subquad.experiment import Run, Study, load_given
from subquad.experiment.axes import refuse_unknown_label
from subquad.experiment.refusals import Given
from subquad.experiment.strict_yaml import to_yaml
from subquad.output.terminal import quantity
from subquad.paper.file import Paper, Table, expect_known
from subquad.plugin.metric import Metric, metric_of
from subquad.preparation.costs import StudyCosts
from subquad.preparation.size import cell_of
from subquad.record.files import find_file
from subquad.record.models import Identity, Result
from subquad.record.names import CELLS, IDENTITY
from subquad.registry import recipes

MEASURED: Mapping[str, Metric] = {
    "seconds": Metric(label="training time", unit="s", mode="min"),
    "seconds_per_step": Metric(label="time of a step", unit="s", mode="min"),
    "seconds_per_epoch": Metric(label="time of an epoch", unit="s", mode="min"),
    "tokens_per_second": Metric(label="tokens a second"),
    "peak_memory_bytes": Metric(label="peak memory", unit="B", mode="min"),
    "flops_per_step": Metric(label="FLOPs of a step", mode="min"),
    "parameters": Metric(label="parameters", mode="min"),
}
"""What a run's result has beside the metrics of its task."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table, before anything is known of its runs.

    Attributes:
        metric: what it shows.
        shown: how that is called and printed.
        runs: one a seed.
        reason: why there are none.
    """

    metric: str
    shown: Metric
    runs: tuple[Run, ...] = ()
    reason: str = ""


_Cells = dict[tuple[str, str], Cell]
"""By row and column."""

_Load = Callable[..., Study]


class Wanted:
    """What tables of a paper need at one size.

    Args:
        tables: their names.
        load: reads a study, as `subquad.experiment.load_given` does.

    Attributes:
        tables: as given.
        studies: those that have this size, by name.
        cells: by table, those that are tested for one of them too.

    Raises:
        UserError: a study cannot be used; a row or column is no run, or several; a metric that the
            task lacks; a table with runs of several protocols.
    """

    def __init__(self, paper: Paper, size: str, tables: Iterable[str], load: _Load = load_given):
        self.paper = paper
        self.size = size
        self.tables = tuple(tables)
        self.studies: dict[str, Study] = {}
        self.cells: dict[str, _Cells] = {}
        self._load = load
        self._loaded: dict[tuple[str, str], Study] = {}
        chosen = {name: paper.tables[name] for name in self.tables}
        for table in [*chosen.values()]:
            if table.test:
                chosen[table.test.of] = paper.tables[table.test.of]
        for study in dict.fromkeys(table.study for table in chosen.values()):
            if size in paper.studies.get(study, {}):
                self.studies[study] = self._study(study, size)
        for name, table in chosen.items():
            self.cells[name] = self._cells(paper.at(name), table)

    def _study(self, name: str, size: str) -> Study:
        if (name, size) in self._loaded:
            return self._loaded[name, size]
        called = f"paper-{self.paper.name}-{name}-{size}"
        text = partial(to_yaml, self.paper.studies[name][size])
        given: Any = SimpleNamespace(full_name=called, text=text)
        try:
            study = self._load(
                called, cwd=self.paper.folder, recipes=lambda: {**recipes(), called: given}
            )
        except UserError as error:
            at = self.paper.place.at("studies").at(name)
            raise at.wrong(str(error)) from error
        self._loaded[name, size] = study
        return study

    def _cells(self, at: Given, table: Table) -> _Cells:
        found: _Cells = {}
        study = self.studies.get(table.study)
        for row, line in table.lines.items():
            for name, column in table.places.items():
                metric = column.metric or table.metric
                missing = line.missing or column.missing
                reason = missing or self._no_study(table)
                cell = Cell(metric, metric_of(MEASURED, metric), reason=reason)
                if study is not None and not missing:
                    labels = {**table.where, **line.runs, **column.runs}
                    place = at.at("rows").at(row)
                    for axis, label in labels.items():
                        if column.runs.get(axis) == label:
                            place = at.at("columns").at(name)
                        self._refuse_no_label(place, table.study, axis, label)
                    cell = self._cell(at.at("rows").at(row), study, labels, cell)
                found[row, name] = cell
        protocols = {run.experiment.protocol for cell in found.values() for run in cell.runs}
        if len(protocols) > 1:
            raise at.wrong(f"has runs of several protocols: {', '.join(sorted(protocols))}")
        return found

    def _refuse_no_label(self, place: Given, name: str, key: str, label: str) -> None:
        """Refuse a row or column that is no run, at this size nor at full size."""
        study = self.studies[name]
        expect_known(place, key, [axis.key for axis in study.file.axes], "axis")
        known = _labels(study, key)
        if label not in known and "full" in self.paper.studies[name]:
            known |= _labels(self._study(name, "full"), key)
        refuse_unknown_label(place, label, known)

    def _no_study(self, table: Table) -> str:
        if table.command:
            return f"made by {table.command}"
        return f"no study at --size {self.size}"

    def _cell(self, at: Given, study: Study, labels: Mapping[str, str], cell: Cell) -> Cell:
        runs = [
            run for run in (*study.runs, *study.repeats) if labels.items() <= run.labels.items()
        ]
        if not runs:
            return replace(cell, reason=f"not a run of {study.name} at --size {self.size}")
        first, *others = {"-".join(cell_of(run).values()) for run in runs}
        if others:
            several = ", ".join(sorted([first, *others])[:3])
            raise at.wrong(f"means several runs: {several}; say which by more axes in `runs`")
        declared = {**MEASURED, **runs[0].goal.reports}
        expect_known(at, cell.metric, declared, "metric")
        return replace(
            cell, runs=tuple(runs), shown=metric_of(declared, cell.metric), reason="not run"
        )


def _labels(study: Study, key: str) -> set[str]:
    """What the values of an axis are called."""
    axes = {axis.key: axis for axis in study.file.axes}
    return {*axes[key].known, *(run.labels[key] for run in study.runs)}


@dataclass(frozen=True)
class OnDisk:
    """A run that is there.

    Attributes:
        folder: its own.
        is_finished: whether it has the result of a finished run.
        rate: counted FLOPs a second of its training; None where that is not known.
    """

    folder: Path
    is_finished: bool
    rate: float | None = None


def runs_on_disk(root: Path) -> dict[str, OnDisk]:
    """Runs below `root/runs` by the digest of their experiment: of several the newest that is
    finished, else the newest.
    """
    found: dict[str, OnDisk] = {}
    paths = [*root.glob(f"runs/*/*/{IDENTITY}"), *root.glob(f"runs/*/*/{CELLS}/*/{IDENTITY}")]
    for path in sorted(paths, key=lambda path: path.relative_to(root).parts[2:]):
        folder = path.parent
        identity = find_file(Identity, folder)
        if identity is None or not identity.digest:
            continue
        result = find_file(Result, folder)
        is_finished = result is not None and result.status == "finished"
        known = found.get(identity.digest)
        if known is None or is_finished or not known.is_finished:
            found[identity.digest] = OnDisk(folder, is_finished, _rate(result))
    return found


def _rate(result: Result | None) -> float | None:
    if result is None or not result.flops_per_step or not result.seconds_per_step:
        return None
    return result.flops_per_step / result.seconds_per_step


def estimate(runs: Iterable[Run], there: Mapping[str, OnDisk], costs: StudyCosts) -> str:
    """What runs cost, in words: counted FLOPs, and hours at the rate of finished runs.

    Args:
        there: runs that are there, whose rates are known.
    """
    flops = 0.0
    count = 0
    unknown: dict[str, None] = {}
    for run in runs:
        count += 1
        try:
            steps, _ = costs.steps(run)
            each = costs.cost(run).flops_per_step
        except UserError as error:
            unknown[str(error)] = None
            continue
        if each is None:
            unknown["not counted"] = None
        flops += steps * (each or 0)
    words = f"{quantity(count, 'run')} to train: {flops:.2g} FLOPs"
    rates = [known.rate for known in there.values() if known.rate]
    if flops and rates:
        rate = median(rates)
        words += f", about {flops / rate / 3600:.2g} h at {rate:.2g} FLOPs/s, the median of "
        words += f"{quantity(len(rates), 'finished run')} here"
    elif flops:
        words += "; hours are told once a run is finished here"
    if unknown:
        words += f"; without some: {next(iter(unknown))}{and_more(len(unknown) - 1)}"
    return words


def missing_runs(wanted: Wanted, there: Mapping[str, OnDisk]) -> dict[str, list[Run]]:
    """Runs to train by study, each experiment once, the first seed of all before the second one."""
    needed: dict[str, None] = {}
    for cells in wanted.cells.values():
        for cell in cells.values():
            needed |= dict.fromkeys(run.digest for run in cell.runs)
    missing: dict[str, list[Run]] = {}
    for name, study in wanted.studies.items():
        own = []
        for run in study.runs:
            known = there.get(run.digest)
            if run.digest in needed and not (known and known.is_finished):
                own.append(run)
                del needed[run.digest]
        if own:
            missing[name] = sorted(own, key=lambda run: run.experiment.train.seed)
    return missing


def part_of(study: Study, runs: Sequence[Run]) -> Study:
    """A study with some of its runs alone."""
    mixers = {run.labels.get("mixer") for run in runs}
    baseline = study.file.baseline
    file = replace(study.file, baseline=baseline if baseline in mixers else "")
    return replace(study, runs=tuple(runs), repeats=(), file=file)


def begun_with(runs: Iterable[Run], there: Mapping[str, OnDisk], name: str) -> list[Path]:
    """Folders of studies of this name that have begun some of the runs."""
    found: dict[Path, None] = {}
    for run in runs:
        if run.digest in there:
            above = there[run.digest].folder.parent
            if above.name == CELLS and above.parent.parent.name == name:
                found[above.parent] = None
    return list(found)
