"""From run directories to a report: plain data that the writers turn into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from subquad.report.beside import Beside, published_beside
from subquad.report.cells import Cell, read_cells
from subquad.report.compare import Comparison, compare_rows
from subquad.report.headlines import headlines
from subquad.report.rows import Row, make_rows

BASELINE = "identity"
"""The control mixer: what a network scores when tokens are not mixed at all."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        rows: the table.
        published: for each row, the published rows of its mixer.
        comparisons: pairs of rows.
        headlines: a sentence for each data set and protocol.
        cells: every run, in the order read.
        baseline: the control mixer.
    """

    rows: tuple[Row, ...]
    published: tuple[tuple[Beside, ...], ...]
    comparisons: tuple[Comparison, ...]
    headlines: tuple[str, ...]
    cells: tuple[Cell, ...]
    baseline: str


def build(folders: Sequence[Path], *, baseline: str = BASELINE) -> Report:
    """Read run or study directories.

    Args:
        folders: run and study directories.
        baseline: the control mixer's name.

    Raises:
        RunError: a folder is neither a run nor a study, or a result cannot be read.
        ConfigError: an experiment.yaml cannot be read.
    """
    cells = read_cells(folders)
    rows = make_rows(cells)
    comparisons = compare_rows(rows, baseline)
    return Report(
        rows=tuple(rows),
        published=tuple(tuple(published_beside(row)) for row in rows),
        comparisons=tuple(comparisons),
        headlines=tuple(headlines(rows, comparisons, baseline)),
        cells=tuple(cells),
        baseline=baseline,
    )
