"""Reports of searches: what each subject's trials came to, then the final study's own report.

`read_search_report(folder)` reads, `to_terminal(report, console)` prints, `write(report, folder, formats)` makes files.
"""

from __future__ import annotations

from subquad.search.report.files import to_json, write
from subquad.search.report.read import SearchReport, read_search_report
from subquad.search.report.terminal import to_terminal

__all__ = ["SearchReport", "read_search_report", "to_json", "to_terminal", "write"]
