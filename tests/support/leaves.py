"""Every command that can be called, by its words, as `submit train`; a new one is met by itself."""

from __future__ import annotations

from collections.abc import Iterator

import click

from subquad.cli.main import cli


def leaves(
    command: click.Command = cli, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Commands below one, each with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*words, name))


COMMANDS = dict(leaves())
