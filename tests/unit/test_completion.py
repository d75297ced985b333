"""What the shell completes, as Bash asks for it, and in a real Bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from subquad.cli.main import cli

ASKS = """
{source}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ echo "option $1 $2"; }}
_subquad_completion subquad
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> Path:
    """A folder with `subquad`."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "subquad"
    program.write_text(
        f"#!{sys.executable} -P\nimport sys\nfrom subquad.cli.main import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    return folder


def completed(words: list[str], command: Path, cwd: Path) -> list[str]:
    """What Bash would offer for the last word; it splits words at `=` itself."""
    environment = {**os.environ, "PATH": f"{command}{os.pathsep}{os.environ['PATH']}"}
    source = subprocess.run(
        ["subquad"],
        env={**environment, "_SUBQUAD_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "complete -o nosort -o default -F" in source
    script = ASKS.format(source=source, words=" ".join(f"'{word}'" for word in words))
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=cwd, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no Bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["train", "quick"], ["quickstart"]),
        (["train", "quickstart", "train.lr"], ["train.lr="]),
        (["train", "quickstart", "mixer", "=", "agf"], ["agf"]),
        (["train", "quickstart", "mixer", "=", "long"], ["longformer"]),
        (["tune", "quickstart", "--space", "agf+optim"], ["agf+optimizer"]),
        (["check", "bigb"], ["bigbird"]),
        (["list", "data"], ["dataset"]),
        (["show", "mixer", "megac"], ["megacur"]),
        (["show", "quickst"], ["quickstart"]),
    ],
)
def test_bash_completes(words, offered, command, tmp_path):
    found = completed(["subquad", *words], command, tmp_path)
    lines = [line for line in found if not line.startswith("option ")]
    assert set(offered) <= set(lines)
    typed = words[-1]
    assert all(word.startswith(typed) for word in lines if word)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no Bash")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["train", "./my"], "option -o default"),
        (["check", "./my"], "option -o default"),
        (["resume", "ru"], "option -o dirnames"),
        (["report", "one", "ru"], "option -o dirnames"),
        (["train", "quickstart", "train.lr"], "option -o nospace"),
    ],
)
def test_bash_is_told_to_complete_files_folders_and_values(words, option, command, tmp_path):
    assert option in completed(["subquad", *words], command, tmp_path)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_asked_for_files_too(shell):
    found = get_completion_class(shell)(cli, {}, "subquad", "_SUBQUAD_COMPLETE")
    offered = {(item.type, item.value) for item in found.get_completions(["train"], "quickst")}
    assert offered == {("plain", "quickstart"), ("file", "quickst")}
    offered = {item.value for item in found.get_completions(["train", "quickstart"], "mixer=cu")}
    assert "mixer=cur" in offered
