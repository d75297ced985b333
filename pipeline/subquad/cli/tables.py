"""What verbs share: tables of foreign text, JSON for scripts, paths."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast, get_args

import click
from rich.console import Console

from subquad.errors import PluginError
from subquad.registry import Kind
from subquad.registry.foreign import plain
from subquad.suggest import did_you_mean

_ENDLESS = 100_000
"""Columns of what is no terminal: lines stay whole, for grep and for whoever reads the file later."""


class LocalPath(click.Path):
    """A path of this machine; of an address it would make a folder with the name `s3:`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            self.fail(f"{value} is an address; give a folder of this machine", param, ctx)
        return super().convert(value, param, ctx)


def console_of(*, stderr: bool = False) -> Console:
    """What every command prints on: as wide as its terminal, and without limit in a file or pipe."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = stream is not None and stream.isatty()
    return _Console(stderr=stderr, width=None if terminal else _ENDLESS, highlight=False)


class _Console(Console):
    """A console on which no text steers the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(_inert(shown) if isinstance(shown, str) else shown for shown in objects), **options)


def print_json(data: Any) -> None:
    """One JSON document on stdout, ASCII only."""
    click.echo(json.dumps(data, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table; every cell is made safe for a terminal. Nothing where stdout is closed."""
    from rich.table import Table
    from rich.text import Text

    if sys.stdout is None:
        return
    table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_encodable(plain(cell))) for cell in row))
    console_of().print(table)


def print_line(text: object = "", *, err: bool = False) -> None:
    """One line of foreign text."""
    click.echo(_encodable(plain(text, limit=10_000)), err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Foreign text as it is but for characters that could steer a terminal; its lines and tabs stay."""
    click.echo(_encodable(_inert(text)), nl=False, err=err)


def _inert(text: str) -> str:
    return plain(text, limit=sys.maxsize, keep="\n\t")


def _encodable(text: str) -> str:
    """`text` with what stdout's encoding lacks written as escapes."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def kind_of(word: str, also: Sequence[str] = ()) -> Kind:
    """The kind that a user's word means, also in the plural; `also` are further words that are allowed.

    Raises:
        PluginError: no kind is called so.
    """
    known = [*get_args(Kind), *also]
    if found := [one for one in (word, word.removesuffix("es"), word.removesuffix("s")) if one in known]:
        return cast(Kind, found[0])
    raise PluginError(plain(f"no kind {word!r}{did_you_mean(word, known)}; kinds: {', '.join(known)}"))
