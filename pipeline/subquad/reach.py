"""What a command does with files and machines of others; docs/security.md is a table of it.

Imports nothing of subquad, as every command declares its reach where it is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

_at_work: list[Reach] = []
"""Of the commands that this process is in, the innermost last."""


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
        asks: whether it asks addresses of data, weights and storage that TARGET or RUN alone names.
            A command that only looks asks those that the user gave or trained with.
    """

    reads: str
    runs: str = "nothing"
    writes: str = "nothing"
    sends: str = "nothing"
    asks: bool = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare it of a command's function."""

        @wraps(function)
        def called(*given: Any, **options: Any) -> Any:
            _at_work.append(self)
            try:
                return function(*given, **options)
            finally:
                _at_work.pop()

        called.__dict__["reach"] = self
        return called

    @staticmethod
    def of(function: object) -> Reach | None:
        """What was declared of a command's function; None where nothing was."""
        return getattr(function, "reach", None)

    @staticmethod
    def looks() -> bool:
        """Whether this process is in a command that only looks."""
        return bool(_at_work) and not _at_work[-1].asks
