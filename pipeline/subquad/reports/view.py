"""A report as an object of Python that shows itself in a notebook."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pandas as pd
from rich.console import Console

from subquad.output.markup import fill_template
from subquad.reports.document import ReportDocument
from subquad.reports.drawing import Chart
from subquad.reports.formats import HERE, picture, print_document, sheet_of

_WIDTH = 120
"""Characters of a line of the text."""


@dataclass(frozen=True)
class Charts:
    """Pictures that a notebook shows side by side.

    Attributes:
        charts: each has a `title`, a `description` in words, and `drawn()`, its SVG.
    """

    charts: tuple[Chart, ...]

    def __len__(self) -> int:
        return len(self.charts)

    def _repr_html_(self) -> str:
        return fill_template(HERE, "charts.html.j2", charts=self.charts, picture=picture)


@dataclass(frozen=True)
class ReportView:
    """What `subquad report` says of runs. A notebook shows its tables, `print` its text.

    Attributes:
        document: all of it, in tables and sentences.
    """

    document: ReportDocument

    def table(self) -> pd.DataFrame:
        """The rows of report.csv, with numbers as numbers."""
        records, columns = sheet_of(self.document)
        return pd.DataFrame(records, columns=pd.Index(columns))

    def curves(self) -> Charts:
        """The pictures of the report's page: scores, and metrics and losses while training."""
        return Charts(self.document.charts)

    def _repr_html_(self) -> str:
        return fill_template(HERE, "view.html.j2", document=self.document)

    def __repr__(self) -> str:
        stream = io.StringIO()
        print_document(self.document, Console(file=stream, width=_WIDTH))
        return stream.getvalue().rstrip("\n")
