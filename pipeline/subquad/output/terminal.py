"""What commands print, of whatever text: tables, lines, JSON for scripts; and paths as they take
them.

Rich is imported where something is printed, as the modules of commands are imported for their help.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from subquad.errors import escaped

if TYPE_CHECKING:
    from rich.console import Console

DASH = "–"
"""For a value that is not there."""
_ENDLESS = 100_000
"""Columns of what is no terminal: lines stay whole, for grep and for whoever reads the file
later.
"""
_PIPED = 100
"""The same of tables with prose."""


class LocalPath(click.Path):
    """A path of this machine; of an address it would make a folder with the name `s3:`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            self.fail(f"{value} is an address; give a folder of this machine", param, ctx)
        return super().convert(value, param, ctx)


class Matching(click.ParamType):
    """Text of one form; whatever it is, it can be pasted into a script."""

    def __init__(self, name: str, pattern: str, words: str):
        self.name, self._pattern, self._words = name, pattern, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(self._pattern, value):
            self.fail(f"{value!r}: {self._words}", param, ctx)
        return value


def console_of(*, stderr: bool = False) -> Console:
    """What every command prints on: as wide as its terminal, and without limit in a file or pipe;
    no text steers the terminal.
    """
    from rich.console import Console

    class InertConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            shown = [_inert(part) if isinstance(part, str) else part for part in objects]
            super().print(*shown, **options)

    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()
    return InertConsole(stderr=stderr, width=None if is_terminal else _ENDLESS, highlight=False)


def print_json(data: Any) -> None:
    """One JSON document on stdout, ASCII only."""
    click.echo(json.dumps(data, indent=2, default=str))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], cut: str | None = None
) -> None:
    """A table; every cell is made safe for a terminal. Nothing where stdout is closed.

    Args:
        columns: their titles.
        rows: the cells of each.
        cut: column of prose, whose cells end in an ellipsis where a terminal is too narrow; in 100
            columns of a pipe or file they break, as others do.
    """
    from rich.table import Table
    from rich.text import Text

    if sys.stdout is None:
        return
    console = console_of()
    table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        texts = []
        for cell, column in zip(row, columns, strict=True):
            text = Text(_encodable(escaped(cell)))
            if column == cut and console.is_terminal:
                text.no_wrap = True
                text.overflow = "ellipsis"
            texts.append(text)
        table.add_row(*texts)
    console.print(table, width=None if console.is_terminal or cut is None else _PIPED)


def print_line(text: object = "", *, err: bool = False) -> None:
    """One line of foreign text."""
    click.echo(_encodable(escaped(text, limit=10_000)), err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Foreign text as it is but for characters that could steer a terminal; its lines and tabs
    stay.
    """
    click.echo(_encodable(_inert(text)), nl=False, err=err)


def _inert(text: str) -> str:
    return escaped(text, limit=sys.maxsize, keep="\n\t")


def _encodable(text: str) -> str:
    """`text` with what stdout's encoding lacks written as escapes."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def duration(seconds: float | None) -> str:
    """Seconds as a person says them."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s"


def quantity(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
