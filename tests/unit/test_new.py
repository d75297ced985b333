"""`subquad new`: what it writes, and which names it refuses. That the packages work is in
test_third_party.py.
"""

import ast
import subprocess
import sys
import tomllib

import pytest
import yaml

from subquad.cli.main import main
from subquad.plugin import API_VERSION
from subquad.registry import GROUPS
from subquad_check.new import package_files

KINDS = ("mixer", "dataset", "task", "backbone", "space")


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_written(kind, tmp_path, capsys):
    assert main(["new", kind, "my-own_one", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "my-own_one"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{folder}: {8 if kind == 'space' else 7} files. Next:", f"  cd {folder}"]
    assert "  subquad train experiment.yaml --local  # train; without --local through Ray" in lines
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    common = {
        "README.md",
        "pyproject.toml",
        ".gitignore",
        ".github/workflows/ci.yml",
        "experiment.yaml",
    }
    own = (
        {"my_own_one/__init__.py", "my_own_one/my-own_one.yaml"}
        if kind == "space"
        else {"my_own_one.py"}
    )
    assert written == common | own | {"tests/test_my_own_one.py"}
    assert list(tmp_path.iterdir()) == [folder]
    assert folder.stat().st_mode & 0o077  # others may read it, as any folder of the user's
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    target = project["entry-points"][GROUPS[kind]]["my-own_one"]
    assert target == ("my_own_one" if kind == "space" else "my_own_one:MyOwnOne")
    if kind != "space":
        code = (folder / "my_own_one.py").read_text()
        (cls,) = [
            statement
            for statement in ast.parse(code).body
            if isinstance(statement, ast.ClassDef) and statement.name == "MyOwnOne"
        ]
        assert f"    api = {API_VERSION}\n" in code
        assert ast.get_docstring(cls)
    workflow = yaml.safe_load((folder / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["test"]["steps"][-1] == {"run": "pytest"}


def test_the_code_is_short_and_tidy_whatever_its_name(tmp_path):
    for name in ("a", "a-rather-long-name-for-a-new-plugin"):
        for kind in KINDS:
            files = package_files(kind, name)
            assert max(len(text.splitlines()) for text in files.values()) <= 65
            for path, text in files.items():
                (tmp_path / kind / name / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / kind / name / path).write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run([*ruff, *words, "."], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mixr", "a"], "no kind 'mixr'; did you mean 'mixer'?"),
        (
            ["recipe", "a"],
            "KIND: got 'recipe', must be one of backbone, dataset, mixer, space, task",
        ),
        (
            ["mixer", "My-Mixer"],
            "NAME: got 'My-Mixer', write lower case letters, digits, - and _, a letter first",
        ),
        (["mixer", "2d"], "NAME: got '2d', write lower case"),
        (["mixer", "../a"], "NAME: got '../a', write lower case"),
        (["mixer", ""], "NAME: got '', write lower case"),
        (["mixer", "a\n"], "NAME: got 'a\\n', write lower case"),
        (
            ["task", "lambda"],
            "NAME: got 'lambda', a word of Python; choose another, such as my-lambda",
        ),
        (["task", "none"], "NAME: got 'none', a word of Python"),
        (["task", "f"], "NAME: got 'f', a name that the new package's code needs"),
        (["space", "auto"], "NAME: got 'auto', a space of subquad"),
        (["mixer", "agf"], "NAME: got 'agf', a mixer of subquad"),
        (["spaces", "optimizer"], "NAME: got 'optimizer', a space of subquad"),
        (["dataset", "torch"], "NAME: got 'torch', a package or module that is installed"),
        (
            ["dataset", "pydantic-core"],
            "NAME: got 'pydantic-core', a package or module that is installed",
        ),
        (
            ["dataset", "data-spec"],
            "NAME: got 'data-spec', a name that the new package's code needs",
        ),
        (["backbone", "layer"], "NAME: got 'layer', a name that the new package's code needs"),
        (
            ["mixer", "there"],
            "there: is there already; choose another NAME, or another folder with --into",
        ),
        (["mixer", "a" * 300], "File name too long"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert main(["new", *words]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert said in errors
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["new", "mixer", "mine", "--into", str(tmp_path / "no")]) == 2
    assert "Invalid value for '--into'" in capsys.readouterr().err
