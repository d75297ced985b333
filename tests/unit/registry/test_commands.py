"""Commands that packages add to the command line."""

import pytest
from command import cli

PACKAGE = """
import click


@click.command()
@click.option("--times", default=1)
def greet(times):
    "Say hello."
    click.echo("hello " * times)


not_one = 3
"""
METADATA = "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n"


@pytest.fixture
def greeter(tmp_path):
    info = tmp_path / "greeter-1.0.dist-info"
    info.mkdir()
    (tmp_path / "greeter.py").write_text(PACKAGE)
    (info / "METADATA").write_text(METADATA)
    entries = [
        "greet = greeter:greet",
        "train = greeter:greet",
        "bench = greeter:greet",
        "odd = greeter:not_one",
        "gone = greeter:gone",
    ]
    (info / "entry_points.txt").write_text("[subquad.commands]\n" + "\n".join(entries) + "\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_a_package_adds_a_command(greeter, tmp_path):
    assert cli(["greet", "--times", "2"], tmp_path, **greeter).stdout.strip() == "hello hello"
    output = cli(["--help"], tmp_path, **greeter).stdout
    lines = [line.split(maxsplit=1) for line in output.splitlines()]
    assert ["greet", "from greeter 1.0"] in lines
    assert ["bench", "Measure speed on this machine."] in lines, "a built-in one says what it does"
    replaced = [
        line for line in lines if line[:1] in (["train"], ["bench"]) and "greeter" in line[1]
    ]
    assert replaced == []
    assert "step" in cli(["bench", "--help"], tmp_path, **greeter).stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["odd"],
            "subquad: command 'odd' (greeter 1.0): greeter:not_one is int, not a click.Command",
        ),
        (
            ["gone"],
            "subquad: command 'gone' (greeter 1.0) cannot be loaded: "
            "AttributeError: module 'greeter' has no",
        ),
        (["gret"], "subquad: no command 'gret'; did you mean 'greet'?"),
        (
            ["show", "command", "greet"],
            "subquad: a command has no parameters to show: `subquad greet --help`",
        ),
    ],
)
def test_a_command_that_does_not_work_is_one_line(greeter, tmp_path, words, line):
    done = cli(words, tmp_path, check=2, **greeter)
    assert done.stderr.strip().startswith(line)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_blocked_package_adds_none(greeter, tmp_path):
    done = cli(["greet"], tmp_path, check=2, SUBQUAD_DISABLE_PLUGINS="1", **greeter)
    assert "no command 'greet'" in done.stderr
