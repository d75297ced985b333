"""Text of others reaches a terminal through `escaped` alone: every call that prints says so where
it stands.
"""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest

from subquad.cli.main import main
from subquad.output.terminal import console_of

PIPELINE = Path(__file__).resolve().parents[2] / "pipeline"
"""The core and the tools."""

HOME = PIPELINE / "subquad" / "output" / "terminal.py"
PRINTS = {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write"}
SAFE = {"escaped", "json.dumps"}
OURS = {"self._separator", "page", "_EXTRA", "length"}
"""Words of this program."""
HELD = {
    "row",  # json.dumps, in a generator above
    r"f'\r\x1b[K{line}\r'",  # a line of `escaped` that replaces the one before
    "self.head",  # json.dumps, in certificates.py
}
"""Arguments that were looked at."""


def is_safe(argument: ast.expr) -> bool:
    """A constant, JSON, what went through `escaped`, or what consists of such."""
    if isinstance(argument, ast.Call):
        return ast.unparse(argument.func) in SAFE or ast.unparse(argument.func).endswith(
            "model_dump_json"
        )
    if isinstance(argument, ast.BinOp):
        return is_safe(argument.left) and is_safe(argument.right)
    if isinstance(argument, ast.JoinedStr):
        values = [part.value for part in argument.values if isinstance(part, ast.FormattedValue)]
        return all(map(is_safe, values))
    return isinstance(argument, ast.Constant) or ast.unparse(argument) in OURS


def unsafe_calls(path: Path) -> list[str]:
    found = list[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTS and node.args:
            printed = ast.unparse(node.args[0])
            if not is_safe(node.args[0]) and printed not in HELD:
                found.append(f"{path.relative_to(PIPELINE)}:{node.lineno}: {printed}")
    return found


def test_nothing_prints_but_through_escaped():
    files = [path for path in PIPELINE.rglob("*.py") if "templates" not in path.parts]
    assert HOME in files
    assert [call for path in files if path != HOME for call in unsafe_calls(path)] == []


def test_a_call_that_does_not_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PIPELINE", tmp_path)
    (tmp_path / "a.py").write_text(
        'click.echo(f"{name}")\nprint(escaped(name))\nclick.echo(json.dumps(name) + "x")\n'
    )
    assert unsafe_calls(tmp_path / "a.py") == ["a.py:1: f'{name}'"]


def test_a_console_shows_escapes(monkeypatch):
    console = console_of()
    console.file = io.StringIO()
    console.print("a\x1b]52;c;eA==\x07\u202e\u2028b", markup=False)
    assert console.file.getvalue() == "a\\x1b]52;c;eA==\\x07\\u202e\\u2028b\n"


@pytest.mark.parametrize(
    "words",
    [
        ["report", "runs/\x1b]52;c;eA==\x07"],
        ["show", "mixer", "\u202eevil"],
        ["train", "\x9b2Jx.yaml"],
        ["\x1b[2J"],
        ["report", "--format", "\x1b[2J", "x"],
        ["train", "quickstart", "train.\u200bepochs=1"],
        ["verify", "--\x1b[2J"],
        ["sync", "x\r\ny"],
    ],
    ids=range(8),
)
def test_names_on_the_command_line_come_back_as_text(
    words: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err[:-1].isprintable()
