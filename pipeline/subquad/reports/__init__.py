"""Reports: folders of runs in, tables with seeds, intervals, published rows and provenance out.

`read_report(folders)` reads, `document_of(report)` says it in tables and sentences,
`print_document` and `write_document` put that on a terminal and into files. Imports records and
experiments; no torch. Runs nothing, and knows of no driver or search.
"""

from __future__ import annotations

from subquad.reports.document import ReportDocument, Table
from subquad.reports.formats import (
    FORMATS,
    parse_formats,
    print_cells,
    print_document,
    write_document,
)
from subquad.reports.reading import Report, read_report
from subquad.reports.search_report import search_document
from subquad.reports.sections import document_of

__all__ = [
    "FORMATS",
    "Report",
    "ReportDocument",
    "Table",
    "document_of",
    "parse_formats",
    "print_cells",
    "print_document",
    "read_report",
    "search_document",
    "write_document",
]
