"""Reports: run directories in, tables with seeds, intervals, published rows and provenance out.

`build(folders)` reads, `to_terminal(report, console)` prints, `write(report, folder, formats)` makes files.
"""

from __future__ import annotations

from subquad.report.build import BASELINE, Report, build
from subquad.report.files import FORMATS, write
from subquad.report.plain import to_json
from subquad.report.terminal import to_terminal

__all__ = ["BASELINE", "FORMATS", "Report", "build", "to_json", "to_terminal", "write"]
