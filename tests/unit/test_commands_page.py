"""docs/reference/commands.md names every command and, where it has no page of its own, every
option.
"""

import re
from pathlib import Path

import click
import pytest

from subquad.cli.main import cli
from subquad.cli.tune import tune_command
from subquad.search.settings import KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
ELSEWHERE = {"tune", "bench"}

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="runs beside the sources only")


def section(verb: str) -> str:
    found = re.search(
        rf"^## {verb}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found, f"no section {verb}"
    return found[1]


@pytest.mark.parametrize("verb", cli.list_commands(click.Context(cli)))
def test_a_command_is_described_with_its_options(verb):
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    assert f"[`{verb}`](#{verb})" in PAGE.read_text(encoding="utf-8")
    options = {name for param in command.params for name in param.opts if name.startswith("--")}
    shared = {"--debug"}
    missing = [
        name
        for name in sorted(options - shared)
        if verb not in ELSEWHERE and name not in section(verb)
    ]
    assert missing == []


@pytest.mark.parametrize("verb", cli.list_commands(click.Context(cli)))
def test_a_commands_help_has_an_example(verb):
    command = cli.get_command(click.Context(cli), verb)
    leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    assert [leaf.name for leaf in leaves if f"subquad {verb}" not in (leaf.help or "")] == []


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_of_a_search_is_in_help_and_on_its_page(key):
    help_text = " ".join((tune_command.help or "").split())
    assert key in help_text
    page = PAGE.parents[1] / "how-to" / "search.md"
    assert f"| `{key}` |" in page.read_text(encoding="utf-8")
