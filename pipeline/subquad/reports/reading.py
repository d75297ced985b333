"""From run folders to a report: plain data that is rendered elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from subquad.errors import RunError
from subquad.experiment.strict_yaml import read_yaml
from subquad.record.files import find_file, flatten
from subquad.record.integrity import look
from subquad.record.layout import enter, runs_below
from subquad.record.models import (
    Environment,
    Inputs,
    SearchSummary,
)
from subquad.record.names import EXPERIMENT, FINAL, RESULT, SEARCH, STUDY
from subquad.reports.beside import published_beside
from subquad.reports.compare import Comparison, compare_rows
from subquad.reports.curves import Curve, make_curves
from subquad.reports.headlines import make_headlines
from subquad.reports.means import Mean, Ranking, make_means, make_rankings
from subquad.reports.published import Beside
from subquad.reports.reported_run import ReportedRun, Tuning, printable
from subquad.reports.rows import Reference, TableRow, make_examples, make_references, make_rows
from subquad.reports.text import Values, grouped
from subquad.security.disk import entered

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        rows: the table.
        comparisons: pairs of rows.
        references: rows of guesses without a model.
        means: over data sets.
        rankings: of mixers over data sets.
        curves: settings that take several values with all others the same.
        headlines: a sentence for each data set and protocol, and one against its best reference
            score.
        examples: what each row wrote for samples, as in JSON.
        runs: every run, in the order read.
        beside: published rows of each row: those that change the same setting to its value, else
            the main tables'.
        baseline: label of the mixer that others are held against; "" where there is none.
        match: what a study among them made alike for all mixers; "" where nothing.
    """

    rows: tuple[TableRow, ...]
    comparisons: tuple[Comparison, ...]
    references: tuple[Reference, ...]
    means: tuple[Mean, ...]
    rankings: tuple[Ranking, ...]
    curves: tuple[Curve, ...]
    headlines: tuple[str, ...]
    examples: tuple[Values, ...]
    runs: tuple[ReportedRun, ...]
    beside: Mapping[TableRow, Sequence[Beside]]
    baseline: str
    match: str = ""


def read_report(
    folders: Sequence[Path], *, baseline: str | None = None, search: Values | None = None
) -> Report:
    """Read run or study directories.

    Args:
        folders: run and study directories.
        baseline: label of the mixer that others are held against; None: the one that a study among
            them names.
        search: the summary of the search whose final study they are, where it was made anew.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    runs = reported_runs(folders, search)
    rows = make_rows(runs)
    baseline = printable(_study_value(runs, "baseline") if baseline is None else baseline)
    curves = tuple(make_curves(rows))
    references = tuple(make_references(rows))
    varied = {row for curve in curves for row in curve.rows}
    comparisons = compare_rows(rows, baseline, apart=varied)
    means = tuple(make_means(rows, references))
    beside = {}
    for row in rows:
        of_curves = [curve.beside.get(row, ()) for curve in curves if not row.is_base]
        beside[row] = list(chain(*of_curves)) or published_beside(row)
    return Report(
        rows=tuple(rows),
        comparisons=tuple(comparisons),
        references=references,
        means=means,
        rankings=tuple(make_rankings(means, baseline)),
        curves=curves,
        headlines=tuple(make_headlines(rows, comparisons, references, baseline)),
        examples=tuple(make_examples(rows)),
        runs=tuple(runs),
        beside=beside,
        baseline=baseline,
        match=_study_value(runs, "match"),
    )


def _study_value(runs: Iterable[ReportedRun], key: str) -> str:
    """What the first study that has the key has there, "" where none does."""
    for study in dict.fromkeys(run.folder.parent.parent / STUDY for run in runs):
        if study.exists():
            data = read_yaml(study)
            if isinstance(data, dict) and data.get(key):
                return printable(str(data[key]))
    return ""


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
            cell = run.resolve()
            if cell not in runs:
                with entered(run):
                    runs[cell] = _read(
                        run, cell.relative_to(root).as_posix(), _tuning_of(cell, search)
                    )
    return _told_apart(list(runs.values()))


def _told_apart(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """The runs; data sets of one name and with the same settings, but of other content, get a mark
    in their names.
    """
    places = {key for run in runs for entry in run.inputs.values() for key in entry.settings}
    runs = [run.model_copy(update={"places": frozenset(places)}) for run in runs]

    def asked(run: ReportedRun) -> tuple[object, ...]:
        params = {part for part in run.settings.items() if part[0].startswith("dataset.params.")}
        return run.data_label, run.protocol, frozenset(params)

    contents = {
        key: {run.content for run in alike} - {""} for key, alike in grouped(runs, asked).items()
    }
    for number, run in enumerate(runs):
        if run.content and len(contents[asked(run)]) > 1:
            notes = (*run.notes, f"data of other content are called {run.data_label} too")
            runs[number] = run.model_copy(update={"data_mark": run.content[:6], "notes": notes})
    return runs


def _read(run: Path, name: str, tuning: Tuning | None) -> ReportedRun:
    """Without a result, or with one that cannot be believed, what is known is how the run began."""
    path = run / EXPERIMENT
    looked = look(run)
    # where the files are those that the run left, identity.json says the same, and is read faster
    known = looked.result and not looked.faults and looked.identity
    leaves = flatten((known and known.experiment) or read_yaml(path))
    own = {
        "folder": run,
        "name": name,
        "leaves": leaves,
        "environment": find_file(Environment, run) or Environment(),
        "inputs": (find_file(Inputs, run) or Inputs.read({})).parts,
        "tuning": tuning,
        "faults": looked.faults,
    }
    if looked.result is not None:
        found = looked.result.format
        if isinstance(found, int) and found != _FORMAT:
            raise RunError(
                f"{run / RESULT}: result format {found!r}, this subquad reads format {_FORMAT}"
            )
        return ReportedRun.read({**dict(looked.result), **own})
    status = "damaged" if (run / RESULT).exists() else "unfinished"
    begun = dict(looked.identity or ())
    if not begun:  # only its experiment says what it is called
        begun = {
            "mixer": leaves.get("mixer.name"),
            "dataset": leaves.get("dataset.name"),
            "protocol": leaves.get("protocol", "honest"),
            "seed": leaves.get("train.seed", 0),
        }
    try:
        return ReportedRun.read({**begun, **own, "status": status, "experiment": None})
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error


def _tuning_of(cell: Path, summary: Values | None) -> Tuning | None:
    """The tuning of a run of a search's final study; None of other runs, of which nobody knows.

    Args:
        summary: the search's, where it was made anew; else it is read from search.json.
    """
    study = cell.parent.parent
    search = study.parent
    if study.name.partition("-")[0] != FINAL or not (search / SEARCH).exists():
        return None
    if study.name != FINAL:  # set aside, when the search had not spent what it has now
        return Tuning()
    found = SearchSummary.read(summary) if summary else find_file(SearchSummary, search)
    for candidate in found.candidates if found else ():
        if cell.name in candidate.final:
            trials = candidate.trials["finished"]
            return Tuning(trials, candidate.dimensions, candidate.flops)
    return Tuning()
