"""Which runs a table's cells need, and which of them are there: cells that are one experiment have
one run, whichever study trained it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from subquad.errors import UserError
from subquad.experiment import Run, Study
from subquad.experiment.axes import refuse_unknown_label
from subquad.experiment.refusals import Given
from subquad.experiment.strict_yaml import to_yaml
from subquad.output.terminal import quantity
from subquad.plugin.metric import Metric, metric_of
from subquad.preparation.costs import StudyCosts
from subquad.preparation.size import cell_of
from subquad.record.files import find_file
from subquad.record.models import Identity, Result
from subquad.record.names import CELLS, IDENTITY
from subquad.registry import recipes
from subquad_tools.paper.file import Paper, refuse_unknown

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
DIAGNOSED: Mapping[str, Metric] = {
    "token_similarity": Metric(label="cosine between tokens after a layer", mode="min"),
    "gain_ratio": Metric(label="gain of a mixer at pi over that at frequency 0"),
}
"""What is measured of a trained model."""
TRANSFERRED: Mapping[str, Metric] = {
    "output_error": Metric(label="mean difference of outputs of mixers", mode="min"),
}
"""What is measured of a model that has got another one's weights, beside its scores."""


@dataclass(frozen=True)
class Measurement:
    """What is measured beside a run's result.

    Attributes:
        run: whose weights they are.
        other: what gets the weights instead of training; None: nothing.
        untrained: they are the ones that training begins with.
    """

    run: Run
    other: Run | None = None
    untrained: bool = False

    @property
    def words(self) -> str:
        """What it is called in messages."""
        if self.other is None:
            return f"layers of {self.run.label}"
        when = "before" if self.untrained else "after"
        return f"{self.other.label} with the weights of {self.run.label} {when} training"


@dataclass(frozen=True)
class CellRuns:
    """A cell of a table, before anything is known of its runs.

    Attributes:
        metric: what it shows.
        shown: how that is called and printed.
        layer: of what, from 1; None: no single one.
        runs: to be trained, one a seed.
        measurements: made of these; () where their results say it.
        reason: why there are none.
    """

    metric: str
    shown: Metric
    layer: int | None = None
    runs: tuple[Run, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    reason: str = "not run"


class Wanted:
    """What tables of a paper need at one size.

    Args:
        tables: their names.
        load: reads a study, as `subquad.experiment.load_study` does.

    Attributes:
        studies: those that have this size, by name.
        cells: by table, row and column.

    Raises:
        UserError: a study cannot be used; a row or column is no run, or several; a metric that the
            task lacks; a table with runs of several protocols.
    """

    def __init__(self, paper: Paper, size: str, tables: Iterable[str], load: Callable[..., Study]):
        self.paper = paper
        self.size = size
        self.tables = tuple(tables)
        self.studies: dict[str, Study] = {}
        self.cells: dict[tuple[str, str, str], CellRuns] = {}
        for name in dict.fromkeys(paper.tables[table].study for table in self.tables):
            experiment = paper.experiment(name, size)
            if experiment is not None:
                self.studies[name] = self._study(name, experiment, load)
        for name in self.tables:
            protocols = set[str]()
            table = paper.tables[name]
            for row, column in itertools.product(table.rows, table.columns):
                cell = self._cell(name, row, column)
                self.cells[name, row, column] = cell
                protocols |= {run.experiment.protocol for run in cell.runs}
            if len(protocols) > 1:
                raise self._at(name).wrong(
                    f"has runs of several protocols: {', '.join(sorted(protocols))}"
                )

    def _study(self, name: str, experiment: Mapping[str, Any], load: Callable[..., Study]) -> Study:
        called = f"paper-{self.paper.name}-{name}-{self.size}"
        given: Any = SimpleNamespace(full_name=called, text=partial(to_yaml, experiment))
        try:
            return load(called, cwd=self.paper.folder, recipes=lambda: {**recipes(), called: given})
        except UserError as error:
            raise self.paper.place.at("studies").at(name).wrong(str(error)) from error

    def _at(self, table: str) -> Given:
        return self.paper.place.at("tables").at(table)

    def _cell(self, name: str, row: str, column: str) -> CellRuns:
        table = self.paper.tables[name]
        line = table.rows[row]
        place = table.columns[column]
        metric = place.metric or table.metric
        cell = CellRuns(metric, metric_of(MEASURED, metric))
        reason = line.missing or place.missing
        if table.command:
            reason = f"made by {table.command}"
        if reason or table.study not in self.studies:
            return replace(cell, reason=reason or f"no study at --size {self.size}")
        at = self._at(name).at("rows").at(row)
        runs = self._labelled(name, row, column, {})
        if not runs:
            return replace(cell, reason=f"no run of it at --size {self.size}")
        transfer = line.transfer | place.transfer
        layer = line.layer or place.layer
        declared = {**MEASURED, **DIAGNOSED, **runs[0].goal.reports}
        measurements = ()
        untrained = line.untrained or place.untrained
        if untrained and not transfer:
            raise at.wrong("untrained: has no effect without transfer")
        if transfer:
            declared = {**TRANSFERRED, **runs[0].goal.reports}
            givers = self._labelled(name, row, column, transfer)
            pairs = [(giver, run) for giver in givers for run in runs if _fits(giver, run)]
            if givers and not pairs:
                raise at.wrong("transfer: names no run that differs in its mixers alone")
            measurements = tuple(Measurement(giver, run, untrained) for giver, run in pairs)
            runs = [] if untrained else [giver for giver, _ in pairs]
        elif metric in DIAGNOSED:
            measurements = tuple(map(Measurement, runs))
        refuse_unknown(metric, declared, "metric", at)
        if not runs and not measurements:
            return replace(cell, reason=f"no run with its weights at --size {self.size}")
        if (metric in DIAGNOSED) != bool(layer):
            raise at.wrong(f"layer: {', '.join(DIAGNOSED)} need one, and nothing else has any")
        return CellRuns(metric, metric_of(declared, metric), layer, tuple(runs), measurements)

    def _labelled(
        self, name: str, row: str, column: str, others: Mapping[str, str]
    ) -> Sequence[Run]:
        """The runs of a cell, one a seed, with other labels where some are given."""
        table = self.paper.tables[name]
        study = self.studies[table.study]
        at = self._at(name)
        of_row = at.at("rows").at(row)
        wanted: dict[str, str] = {}
        for place, labels in (
            (of_row, table.where | table.rows[row].runs),
            (at.at("columns").at(column), table.columns[column].runs),
            (at, others),
        ):
            for key, label in labels.items():
                _refuse_no_label(place, study, key, label)
            wanted |= labels
        runs = [
            run for run in (*study.runs, *study.repeats) if wanted.items() <= run.labels.items()
        ]
        several = {"-".join(cell_of(run).values()) for run in runs}
        if len(several) > 1:
            raise of_row.wrong(
                f"means several runs: {', '.join(sorted(several)[:3])}; say which by more axes in "
                "`runs`"
            )
        return runs


def _fits(giver: Run, run: Run) -> bool:
    """Whether two runs differ in their mixers alone."""
    its, other = (one.experiment.model_dump(exclude={"mixer", "mixers"}) for one in (giver, run))
    return its == other


def _refuse_no_label(place: Given, study: Study, key: str, label: str) -> None:
    """Refuse a row or column that is no run."""
    axes = {axis.key: axis for axis in study.file.axes}
    refuse_unknown(key, axes, "axis", place)
    refuse_unknown_label(place, label, axes[key].known or {run.labels[key] for run in study.runs})


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
        digest = (find_file(Identity, folder) or Identity.model_construct()).digest
        result = find_file(Result, folder)
        is_finished = result is not None and result.status == "finished"
        if digest not in found or is_finished or not found[digest].is_finished:
            rate = None
            if result and result.flops_per_step and result.seconds_per_step:
                rate = result.flops_per_step / result.seconds_per_step
            found[digest] = OnDisk(folder, is_finished, rate)
    return found


def cost_words(runs: Sequence[Run], there: Mapping[str, OnDisk], costs: StudyCosts) -> str:
    """What runs cost, in words: counted FLOPs, and hours at the rate of finished runs.

    Args:
        there: runs that are there, whose rates are known.
    """
    flops = 0.0
    unknown: dict[str, None] = {}
    for run in runs:
        try:
            steps, _ = costs.steps(run)
            flops += steps * (costs.cost(run).flops_per_step or 0)
        except UserError as error:
            unknown[f"not counted: {error}"] = None
    hours = "hours are told once a run is finished here"
    if rates := [known.rate for known in there.values() if known.rate]:
        rate = median(rates)
        hours = (
            f"{flops / rate / 3600:.2g} h at {rate:.2g} FLOPs/s, the median of "
            f"{quantity(len(rates), 'finished run')} here"
        )
    return "; ".join([f"{quantity(len(runs), 'run')} to train: {flops:.2g} FLOPs", hours, *unknown])


def missing_runs(wanted: Wanted, there: Mapping[str, OnDisk]) -> dict[str, list[Run]]:
    """Runs to train by study, each experiment once, the first seed of all before the second one."""
    done = {digest for digest, known in there.items() if known.is_finished}
    needed = {run.digest for cell in wanted.cells.values() for run in cell.runs} - done
    missing: dict[str, list[Run]] = {}
    for name, study in wanted.studies.items():
        own = [run for run in study.runs if run.digest in needed]
        needed -= {run.digest for run in own}
        if own:
            missing[name] = sorted(own, key=lambda run: run.experiment.train.seed)
    return missing


def part_of(study: Study, runs: Sequence[Run]) -> Study:
    """A study with some of its runs alone."""
    file = study.file
    if file.baseline not in {run.labels.get("mixer") for run in runs}:
        file = replace(file, baseline="")
    return replace(study, runs=tuple(runs), file=file)


def begun(runs: Iterable[Run], there: Mapping[str, OnDisk], name: str) -> set[Path]:
    """Folders of studies of this name that have begun some of the runs."""
    above = {there[run.digest].folder.parent.parent for run in runs if run.digest in there}
    return {folder for folder in above if folder.parent.name == name}
