"""From run directories to a report: plain data that the writers turn into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from subquad.report.beside import Beside, published_beside, varied_beside
from subquad.report.cells import Cell, read_cells
from subquad.report.compare import Comparison, compare_rows
from subquad.report.headlines import headlines
from subquad.report.means import Mean, make_means
from subquad.report.oracles import Oracle, make_oracles
from subquad.report.rows import Row, make_rows
from subquad.report.sensitivity import Sensitivity, clusters, make_sensitivities

BASELINE = "identity"
"""The control mixer: what a network scores when tokens are not mixed at all."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What one data set and protocol have in the table.

    Attributes:
        rows: of mixers, each with its published rows.
        oracles: the rows after them.
    """

    rows: tuple[tuple[Row, tuple[Beside, ...]], ...]
    oracles: tuple[Oracle, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        rows: the table.
        published: for each row, the published rows of its mixer.
        comparisons: pairs of rows.
        oracles: rows of guesses without a model.
        means: over data sets.
        sensitivities: settings that studies varied around a base.
        headlines: a sentence for each data set and protocol, and one against its best oracle.
        cells: every run, in the order read.
        baseline: the control mixer.
    """

    rows: tuple[Row, ...]
    published: tuple[tuple[Beside, ...], ...]
    comparisons: tuple[Comparison, ...]
    oracles: tuple[Oracle, ...]
    means: tuple[Mean, ...]
    sensitivities: tuple[Sensitivity, ...]
    headlines: tuple[str, ...]
    cells: tuple[Cell, ...]
    baseline: str

    @property
    def families(self) -> list[Family]:
        """The rows in their order, those of one data set and protocol together, each with its oracles."""
        pairs = list(zip(self.rows, self.published, strict=True))
        return [
            Family(
                rows=tuple(pair for pair in pairs if (pair[0].dataset, pair[0].protocol) == family),
                oracles=tuple(one for one in self.oracles if (one.dataset, one.protocol) == family),
            )
            for family in dict.fromkeys((row.dataset, row.protocol) for row in self.rows)
        ]


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
    sensitivities, oracles = make_sensitivities(rows), make_oracles(rows)
    comparisons = compare_rows(rows, baseline, clusters(sensitivities))
    return Report(
        rows=tuple(rows),
        published=tuple(tuple(_published(row)) for row in rows),
        comparisons=tuple(comparisons),
        oracles=tuple(oracles),
        means=tuple(make_means(rows, oracles)),
        sensitivities=tuple(sensitivities),
        headlines=tuple(headlines(rows, comparisons, oracles, baseline)),
        cells=tuple(cells),
        baseline=baseline,
    )


def _published(row: Row) -> list[Beside]:
    """Published rows: of a base, and wherever nothing is varied, the main tables'; else those of the varied value."""
    if row.is_base or not row.roles:
        return published_beside(row)
    return [one for role in row.roles for key, _ in role for one in varied_beside(row, key)]
