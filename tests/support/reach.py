"""What each command may do with files and machines of others, by the table of docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


class Reach(NamedTuple):
    """A row, in plain words; – stands for nothing.

    Attributes:
        reads: what the command opens.
        runs: whose code it runs, besides that of installed plugins.
        writes: which files and folders it makes or changes.
        sends: what leaves this machine, and to whom.
    """

    reads: str
    runs: str = "–"
    writes: str = "–"
    sends: str = "–"


def reaches() -> dict[str, Reach]:
    """The table, by command; a row may be that of several."""
    heading = f"| command | {' | '.join(Reach._fields)} |"
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line == heading:
            break
    next(lines)
    found: dict[str, Reach] = {}
    for line in lines:
        if not line:
            break
        commands, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found |= dict.fromkeys(re.findall("`(.+?)`", commands), Reach(*cells))
    return found
