"""docs/security.md tells of every command what it does with others' files and machines."""

import re

import click
import pytest
from leaves import COMMANDS
from reach import PAGE, reaches

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="runs beside the sources only")


def test_the_page_has_a_row_for_each_command():
    assert sorted(reaches()) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_row_names_is_an_argument_or_option(name):
    command = COMMANDS[name]
    given = {option for param in command.params for option in param.opts if option.startswith("--")}
    for param in command.params:
        if isinstance(param, click.Argument):
            usage = param.make_metavar(click.Context(command))
            given.update(re.findall("[A-Z]+", usage))
    named = set(re.findall(r"--[a-z-]+|\b[A-Z]{2,}\b", " ".join(reaches()[name])))
    assert named <= given | {"--dry-run"}
