"""Every command declares what it does with others' files and machines; docs/security.md tells
it.
"""

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest
from leaves import COMMANDS

from subquad.reach import Reach

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
COLUMNS = [field.name for field in fields(Reach) if field.name != "asks"]


def reach_of(name: str) -> Reach:
    found = Reach.of(COMMANDS[name].callback)
    assert found, (
        f"`subquad {name}` needs a declaration: @Reach(reads=..., runs=..., writes=..., sends=...)"
    )
    return found


def table() -> str:
    """What the page has to hold."""
    lines = [f"| command | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in COMMANDS:
        texts = [getattr(reach_of(name), column) for column in COLUMNS]
        cells = ["–" if words == "nothing" else words for words in texts]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


@pytest.mark.skipif(not PAGE.is_file(), reason="runs beside the sources only")
def test_the_page_has_the_table_of_all_commands():
    assert table() in PAGE.read_text(encoding="utf-8"), (
        f"docs/security.md needs this table:\n\n{table()}\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_declaration_names_is_an_argument_or_option(name):
    reach, command = reach_of(name), COMMANDS[name]
    given = {option for param in command.params for option in param.opts if option.startswith("--")}
    for param in command.params:
        if isinstance(param, click.Argument):
            usage = param.make_metavar(click.Context(command))
            given.update(re.findall("[A-Z]+", usage))
    text = " ".join(getattr(reach, column) for column in COLUMNS)
    named = set(re.findall(r"--[a-z-]+|\b[A-Z]{2,}\b", text))
    assert named <= given | {"--dry-run"}


def test_a_command_without_a_declaration_is_found(monkeypatch):
    monkeypatch.setitem(COMMANDS, "odd", click.Command("odd", callback=lambda: None))
    with pytest.raises(AssertionError, match="`subquad odd` needs a declaration"):
        table()
