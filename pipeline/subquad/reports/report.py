"""From run folders to a report: plain data that is rendered elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record.names import STUDY
from subquad.reports.beside import printed_values, published_beside
from subquad.reports.compare import compare_rows, compare_values
from subquad.reports.curves import curve_sentence, varied_rows
from subquad.reports.headlines import make_headlines
from subquad.reports.means import make_means, make_rankings
from subquad.reports.model import Curve, Report, TableRow
from subquad.reports.reading import reported_runs
from subquad.reports.reported_run import ReportedRun, printable
from subquad.reports.rows import make_examples, make_references, make_rows
from subquad.reports.text import Values


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
    curves = tuple(_curves(rows))
    references = tuple(make_references(rows))
    varied = {row for curve in curves for row in curve.rows}
    comparisons = tuple(compare_rows(rows, baseline, apart=varied))
    means = tuple(make_means(rows, references))
    beside = {}
    for row in rows:
        of_curves = [curve.beside.get(row, ()) for curve in curves if not row.is_base]
        beside[row] = list(chain(*of_curves)) or published_beside(row)
    return Report(
        rows=tuple(rows),
        comparisons=comparisons,
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


def _curves(rows: Sequence[TableRow]) -> Iterator[Curve]:
    for key, at, members in varied_rows(rows):
        curve = Curve(
            key=key,
            rows=members,
            at=at,
            comparisons=tuple(compare_values(members, key)),
            beside={row: published_beside(row, key) for row in members},
            printed=[(value, row) for value, row, *_ in printed_values(members[0], key)],
        )
        yield replace(curve, sentence=curve_sentence(curve))


def _study_value(runs: Iterable[ReportedRun], key: str) -> str:
    """What the first study that has the key has there, "" where none does."""
    for study in dict.fromkeys(run.folder.parent.parent / STUDY for run in runs):
        if study.exists():
            data = parse_yaml(read_text(study, str(study)), str(study)).data
            if isinstance(data, dict) and data.get(key):
                return printable(str(data[key]))
    return ""
