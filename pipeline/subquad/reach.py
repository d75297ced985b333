"""What a command does with files and machines of others; docs/security.md is a table of it.

Imports nothing, as every command declares its reach where it is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Reach:
    """How far a command reaches, in plain words: `@Reach(reads="RUN")` above its function.

    Words such as RUN and `--out` are those of its usage. What `runs` does not name runs no plugin
    file, and where `writes` is "nothing", no file is changed.

    Attributes:
        reads: what it opens.
        runs: whose code it runs, besides that of the installed plugins that are used.
        writes: which files and folders it makes or changes.
        sends: what leaves this machine, and to whom.
    """

    reads: str
    runs: str = "nothing"
    writes: str = "nothing"
    sends: str = "nothing"

    def __call__(self, function: Function) -> Function:
        """Declare it of a command's function."""
        function.__dict__["reach"] = self
        return function

    @staticmethod
    def of(function: object) -> Reach | None:
        """What was declared of a command's function; None where nothing was."""
        return getattr(function, "reach", None)
