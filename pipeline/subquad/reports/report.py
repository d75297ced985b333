"""From run folders to a report: plain data that is rendered elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record.names import STUDY
from subquad.reports.beside import Beside, published_beside
from subquad.reports.compare import Comparison, compare_rows
from subquad.reports.curves import Curve, make_curves
from subquad.reports.headlines import make_headlines
from subquad.reports.ranks import Ranking, make_rankings
from subquad.reports.reading import reported_runs
from subquad.reports.references import Mean, Reference, make_means, make_references
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow, make_rows
from subquad.reports.text import Values, printable


@dataclass(frozen=True, kw_only=True)
class ExampleTexts:
    """What the mixers wrote for one sample of a data set.

    Attributes:
        number: of the sample in the test split, from 1.
        target: what the data set gives.
        answers: a row's name, and what its first run gave.
    """

    dataset: str
    number: int
    target: str
    answers: tuple[tuple[str, str], ...]


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
        examples: answers in words.
        runs: every run, in the order read.
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
    examples: tuple[ExampleTexts, ...]
    runs: tuple[ReportedRun, ...]
    baseline: str
    match: str = ""

    def published(self, row: TableRow) -> list[Beside]:
        """Published rows beside a row: those that change the same setting to its value, else the
        main tables'.
        """
        varied: list[Beside] = []
        for curve in self.curves:
            if not row.is_base and row in curve.rows:
                varied += published_beside(row, curve.key)
        return varied or published_beside(row)


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
    if baseline is None:
        baseline = _study_value(runs, "baseline")
    baseline = printable(baseline)
    curves = make_curves(rows)
    references = list(make_references(rows))
    varied: list[TableRow] = []
    for curve in curves:
        varied += curve.rows
    comparisons = compare_rows(rows, baseline, apart=varied)
    means = list(make_means(rows, references))
    headlines = make_headlines(rows, comparisons, references, baseline)
    return Report(
        rows=tuple(rows),
        comparisons=tuple(comparisons),
        references=tuple(references),
        means=tuple(means),
        rankings=tuple(make_rankings(means, baseline)),
        curves=tuple(curves),
        headlines=tuple(headlines),
        examples=tuple(_examples(rows)),
        runs=tuple(runs),
        baseline=baseline,
        match=_study_value(runs, "match"),
    )


def _examples(rows: Sequence[TableRow]) -> Iterator[ExampleTexts]:
    """By data set and sample; rows whose samples have other targets stand apart."""
    for dataset, of_dataset in groupby(rows, key=lambda row: row.dataset):
        answers = defaultdict[tuple[int, str], list[tuple[str, str]]](list)
        for row in of_dataset:
            for number, example in enumerate(row.first.examples, 1):
                answers[number, example.target].append((row.name, example.answer))
        for number, target in sorted(answers, key=lambda sample: sample[0]):
            yield ExampleTexts(
                dataset=dataset,
                number=number,
                target=target,
                answers=tuple(answers[number, target]),
            )


def _study_value(runs: Iterable[ReportedRun], key: str) -> str:
    """What the first study that has the key has there, "" where none does."""
    for study in dict.fromkeys(run.folder.parent.parent / STUDY for run in runs):
        if not study.exists():
            continue
        place = str(study)
        data = parse_yaml(read_text(study, place), place).data
        if isinstance(data, dict) and data.get(key):
            return printable(str(data[key]))
    return ""
