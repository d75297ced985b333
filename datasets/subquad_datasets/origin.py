"""Where a data set's samples come from: the files below `path`, or a generator where it is null."""

from __future__ import annotations

from subquad.plugin import Not, When

READ: When = {"path": Not(None)}
"""Of a setting that says how files are read."""

GENERATED: When = {"path": (None,)}
"""Of a setting that says what is generated."""
