"""A plugin's file runs where the user named it or trusts its folder, and never because a folder or
an experiment names it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from small_run import SMALL
from wheels import MEAN

import subquad
from subquad.cli.main import main
from subquad.errors import PluginError, UserError
from subquad.record import trust
from subquad.registry import source

CANARY = "import pathlib; pathlib.Path({!r}).touch()\n"
MIXER = "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}"
ASKED = "you do not trust"


@pytest.fixture(autouse=True)
def _nothing_given(tmp_path, monkeypatch):
    _somebody(tmp_path, monkeypatch, "config")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def _somebody(tmp_path, monkeypatch, name: str) -> None:
    """Be a user of whom nothing is known."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))
    monkeypatch.setattr(trust, "_given", [])
    monkeypatch.setattr(trust, "_here", {})


@pytest.fixture
def theirs(tmp_path) -> Callable[[], bool]:
    """Somebody's experiment beside a file of theirs; says whether that ran since it was asked
    before.
    """
    canary = tmp_path / "canary"
    Path("x.py").write_text(CANARY.format(str(canary)) + MEAN)
    Path("theirs.yaml").write_text(SMALL.replace(MIXER, "mixer: ./x.py:Mean"))

    def ran() -> bool:
        found = canary.exists()
        canary.unlink(missing_ok=True)
        _begin_anew()
        return found

    return ran


def _begin_anew(*others: str) -> None:
    """Be a new process, as far as code is concerned."""
    trust._here.pop("passed", None)
    for name in [
        name for name in sys.modules if name.startswith("subquad_source_") or name in others
    ]:
        del sys.modules[name]


NAMES = [
    ["train", "theirs.yaml", "--local"],
    ["train", "theirs.yaml", "--dry-run"],
    ["tune", "theirs.yaml", "--space", "optimizer", "--local"],
    ["tune", "theirs.yaml", "--space", "optimizer", "--dry-run", "--local"],
    ["bench", "step", "theirs.yaml"],
    ["diagnose", "theirs.yaml"],
    ["bench", "mixers", "--protocol", "rows.yaml"],
]


@pytest.mark.parametrize("words", NAMES)
def test_a_file_that_only_an_experiment_names_does_not_run(theirs, words, capsys):
    Path("rows.yaml").write_text("mixers: ['./x.py:Mean']\nlengths: [8]\n")
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert f"subquad trust {Path().resolve()}" in errors
    assert str(Path("x.py").resolve()) in errors
    assert not theirs()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["data", "show", "theirs.yaml"], 0),
        (["data", "prepare", "theirs.yaml", "mixer.params.anything=3"], 0),
        (["cluster", "render", "slurm", "theirs.yaml"], 0),
        (["cluster", "render", "kuberay", "theirs.yaml", "resources.storage=s3://b/x"], 2),
        (["data", "show", "task.yaml"], 0),
        (["data", "show", "dataset.yaml"], 2),
    ],
)
def test_what_only_looks_runs_no_file_although_its_folder_is_trusted(theirs, words, code, capsys):
    assert main(["trust", "."]) == 0
    assert main(["train", "theirs.yaml", "--dry-run"]) == 0
    assert theirs()
    capsys.readouterr()
    Path("task.yaml").write_text(
        SMALL.replace("task: classification", "task: {name: ./x.py:T, params: {a: 1}}")
    )
    Path("dataset.yaml").write_text(SMALL.replace("name: recall", "name: ./x.py:D"))
    assert main(words) == code, capsys.readouterr().err
    assert not theirs()
    assert capsys.readouterr().err.count("\n") == (code == 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.py:Mean", ["diagnose", "x.py:Mean"]),
        ("x.py:Mean", ["check", "x.py:Mean"]),
        ("mixer=x.py:Mean", ["train", "mixer=x.py:Mean", "theirs.yaml", "--dry-run"]),
        ("--local", ["resume", "--local", "runs"]),
        ("--root=theirs", ["resume", "--root=theirs", "runs"]),
        ("--root=theirs/", ["resume", "--root=theirs/", "runs"]),
        ("mixer=./x.py:Mean", ["train", "theirs.yaml", "mixer=./x.py:Mean", "--dry-run"]),
        ("a/x.py:Mean", ["check", "a/x.py:Mean"]),
    ],
)
def test_names_that_a_shell_writes_for_a_star_are_no_words_of_the_user(theirs, name, words, capsys):
    Path(name).mkdir(parents=True)
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(
        f"{name}: a file or folder here has this name; for that write ./{name}\n"
    )
    assert not theirs()


def test_a_trusted_folder_lets_files_run_until_it_is_trusted_no_more(theirs, capsys):
    assert main(["trust", "."]) == 0
    for _ in range(2):
        assert main(["train", "theirs.yaml", "--dry-run"]) == 0
        assert theirs()
        Path("x.py").write_text(f"{Path('x.py').read_text()}\n")
    place = trust._place()
    assert json.loads(place.read_text()) == {"folders": [trust._entry(Path().resolve())]}
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"{Path().resolve()}\n"
    assert main(["trust", "--remove", "."]) == 0
    assert main(["train", "theirs.yaml", "--dry-run"]) == 2
    assert not theirs()
    for wrong in ([], ["--list", "."], ["--remove", "."], ["none"]):
        assert main(["trust", *wrong]) == 2


def test_a_folder_that_everybody_may_write_is_not_trusted(theirs, capsys):
    Path("open").mkdir()
    Path("open").chmod(0o777)
    assert main(["trust", "open"]) == 2
    assert "everybody may write there" in capsys.readouterr().err
    assert main(["trust", "."]) == 0
    for name in ("x.py", "theirs.yaml"):
        shutil.copy(name, f"open/{name}")
    for _ in range(2):  # neither is its code run as that of a trusted folder around it
        assert main(["train", "open/theirs.yaml", "--dry-run"]) == 2
        assert not theirs()
        Path("open/deep").mkdir(exist_ok=True)
        shutil.copy("x.py", "open/deep/x.py")
        Path("open/theirs.yaml").write_text(SMALL.replace(MIXER, "mixer: ./deep/x.py:Mean"))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_trusts_nothing(theirs, mode):
    assert main(["trust", "."]) == 0
    trust._here.clear()
    assert trust.trusted_folders() == [Path.cwd()]
    trust._place().chmod(mode)
    assert trust.trusted_folders() == []


@pytest.mark.ci
def test_what_processes_note_at_once_is_all_kept(tmp_path):
    code = (
        "from subquad.record import trust; "
        "[trust.note_place(f's3://{{i}}') for i in range({0}, {0} + 20)]"
    )
    noting = [
        subprocess.Popen([sys.executable, "-P", "-c", code.format(first)]) for first in (0, 20, 40)
    ]
    assert [process.wait() for process in noting] == [0, 0, 0]
    assert len(json.loads(trust._place().read_text())["places"]) == 60


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_one_is_asked_once(theirs, monkeypatch, answer):
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text) or answer)
    for _ in range(2):
        assert main(["train", "theirs.yaml", "--dry-run"]) == (0 if answer else 2)
        assert theirs() == answer
    here = Path().resolve()
    assert asked[0] == f"{here} wants to run {here / 'x.py'}. Trust {here}?"
    assert len(asked) == (1 if answer else 2)


def _with_neighbour(own: Path) -> None:
    """An experiment whose mixer's file imports another one beside it."""
    beside = (
        "import pathlib, sys; sys.path.insert(0, str(pathlib.Path(__file__).parent)); "
        "import beside_it\n"
    )
    (own / "x.py").write_text(beside + MEAN)
    (own / "beside_it.py").write_text("")
    (own / "own.yaml").write_text(SMALL.replace(MIXER, "mixer: ./x.py:Mean"))


def test_a_copy_of_a_trusted_folder_is_another_one_and_a_moved_folder_the_same(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    own, canary = tmp_path / "work", tmp_path / "canary"
    _with_neighbour(own)
    assert main(["trust", "."]) == 0
    assert main(["train", "own.yaml", "--dry-run"]) == 0
    theirs = Path(shutil.copytree(own, tmp_path / "theirs"))
    (theirs / "beside_it.py").write_text(CANARY.format(str(canary)))
    linked = Path(shutil.copytree(theirs, tmp_path / "linked"))
    (linked / "x.py").unlink()
    (linked / "x.py").symlink_to(own / "x.py")
    for target in (str(theirs / "own.yaml"), "../theirs/own.yaml", "../linked/own.yaml"):
        _begin_anew("beside_it")
        assert main(["train", target, "--dry-run"]) == 2
        assert ASKED in capsys.readouterr().err
    assert not canary.exists()
    os.rename(own, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    _begin_anew("beside_it")
    assert main(["train", "own.yaml", "--dry-run"]) == 0
    shutil.move(theirs, own)
    monkeypatch.chdir(own)
    _begin_anew("beside_it")
    assert main(["train", "own.yaml", "--dry-run"]) == 2
    assert not canary.exists()


@pytest.mark.parametrize(
    "mark", ["identity.json", "cells/a/identity.json", "trials/a/b/trial.json"]
)
def test_files_that_make_a_trusted_folder_look_like_a_study_change_nothing(theirs, mark, capsys):
    assert main(["trust", "."]) == 0
    evil = Path("fetched")
    evil.mkdir()
    (evil / "identity.json").touch()
    Path(mark).parent.mkdir(parents=True, exist_ok=True)
    Path(mark).touch()
    for name in ("x.py", "theirs.yaml"):
        shutil.copy(name, evil / name)
    assert main(["train", "fetched/theirs.yaml", "--dry-run"]) == 2
    assert f"subquad trust {evil.resolve()}" in capsys.readouterr().err
    assert not theirs()


def test_a_folder_whose_name_looks_like_a_plugin_names_none(theirs):
    Path("x.py:run").mkdir()
    trust.give(str(Path("x.py:run").resolve()))
    assert not trust.is_named(Path("x.py").resolve())
    trust.give("./x.py:Mean")
    assert trust.is_named(Path("x.py").resolve())


def test_a_link_that_changes_while_a_file_is_read_runs_nothing(theirs, tmp_path, monkeypatch):
    assert main(["trust", "."]) == 0
    given = tmp_path / "given"
    given.mkdir()
    shutil.copy("x.py", given / "x.py")
    Path("x.py").write_text(MEAN)
    (given / "theirs.yaml").write_text(SMALL.replace(MIXER, "mixer: ./link/x.py:Mean"))
    link = given / "link"
    link.symlink_to(given)
    read = source._read

    def changing(label: str, path: Path) -> bytes:
        content = read(label, path)
        link.unlink()
        link.symlink_to(Path().resolve())
        return content

    monkeypatch.setattr(source, "_read", changing)
    assert main(["train", str(given / "theirs.yaml"), "--dry-run"]) == 2
    assert not theirs()


def test_another_folder_at_its_place_is_not_trusted_where_no_birth_is_known(theirs, monkeypatch):
    assert main(["trust", "."]) == 0
    monkeypatch.setattr(trust, "_entry", lambda folder: f"- {folder}")
    assert main(["train", "theirs.yaml", "--dry-run"]) == 2
    assert not theirs()
    assert main(["trust", "."]) == 0
    assert main(["train", "theirs.yaml", "--dry-run"]) == 0
    assert theirs()


@pytest.mark.parametrize(
    "word",
    [
        "mixer=./x.py:Mean",
        "mixer={name: x.py:Mean}",
        "matrix={mixer: [{name: './x.py:Mean', label: a}], seed: [0]}",
    ],
)
def test_a_file_that_the_command_line_names_runs(theirs, word):
    Path("plain.yaml").write_text(SMALL)
    assert main(["train", "plain.yaml", word, "--dry-run"]) == 0
    assert theirs()


def test_another_file_of_the_same_name_does_not(theirs, tmp_path):
    (tmp_path / "work" / "deep").mkdir()
    for name in ("x.py", "theirs.yaml"):
        shutil.copy(name, f"deep/{name}")
    Path("x.py").write_text(MEAN)
    words = ["train.lr=0.5", "mixer.params={}", "dataset.params.path=x.py:Mean", "--dry-run"]
    assert main(["train", "deep/theirs.yaml", *words]) == 2
    assert not theirs()


@pytest.fixture
def trained(theirs, capsys) -> Path:
    """A run of an experiment in a trusted folder."""
    assert main(["trust", "."]) == 0
    assert main(["train", "theirs.yaml", "--local", "train.steps=2", "train.epochs=null"]) == 0
    assert theirs()
    capsys.readouterr()
    (run,) = Path("runs").glob("*/*")
    return run.resolve()


def _uses(run: Path, model: str = "model") -> list[list[str]]:
    """Commands that need the code of a run."""
    return [
        ["eval", str(run), "x.py"],
        ["predict", str(run), "x.py"],
        ["resume", str(run), "--local"],
        ["export", str(run), model],
        ["diagnose", str(run)],
        ["swap", str(run), "softmax", "--out", f"{model}-swap"],
    ]


@pytest.mark.ci
def test_ones_own_work_needs_no_word_and_somebody_elses_one(
    theirs, trained, tmp_path, monkeypatch, capsys
):
    for words in [["verify", str(trained)], ["report", str(trained)], *_uses(trained)]:
        _begin_anew()
        main(words)
        assert ASKED not in capsys.readouterr().err, words
    _somebody(tmp_path, monkeypatch, "somebody")
    theirs()
    for words in [["verify", str(trained)], ["report", str(trained)], *_uses(trained, "again")]:
        _begin_anew()
        main(words)
        output = "".join(capsys.readouterr())
        assert not theirs(), words
        assert words[0] in ("report", "verify") or ASKED in output, words
    for folder in (str(trained), "model"):
        with pytest.raises(PluginError, match=ASKED):
            subquad.load(folder)
        assert not theirs()


@pytest.mark.ci
def test_a_moved_run_keeps_its_code_and_a_copied_one_is_somebody_elses(
    theirs, trained, tmp_path, monkeypatch, capsys
):
    """Also in a trusted folder: what is fetched or copied there may be anybody's."""
    copy = Path(shutil.copytree(trained, "copied"))
    for words in _uses(copy):
        assert main(words) == 2
        assert ASKED in capsys.readouterr().err, words
        assert not theirs()
    os.rename(tmp_path / "work", tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    run = tmp_path / "moved" / trained.relative_to(tmp_path / "work")
    for words in (["resume", str(run), "--local"], ["export", str(run), "model"]):
        assert main(words) == 0, capsys.readouterr().err
        theirs()


@pytest.mark.ci
def test_code_in_a_runs_folder_is_not_that_of_the_folder_around_it(theirs, trained, capsys):
    """Whoever names it: an experiment of the run's folder, or one beside it."""
    evil = Path(shutil.copytree(trained, "runs/mine/fetched"))
    shutil.copy("x.py", evil / "x2.py")
    Path("beside.yaml").write_text(SMALL.replace(MIXER, f"mixer: ./{evil}/x2.py:Mean"))
    (evil / "inside.yaml").write_text(SMALL.replace(MIXER, "mixer: ./x2.py:Mean"))
    for target in ("beside.yaml", str(evil / "inside.yaml")):
        assert main(["train", target, "--dry-run"]) == 2
        assert f"subquad trust {evil.resolve()}" in capsys.readouterr().err
        assert not theirs()
    assert main(["trust", str(evil)]) == 0
    assert main(["train", "beside.yaml", "--dry-run"]) == 0
    assert theirs()


@pytest.mark.ci
def test_a_changed_file_is_told_and_not_asked_for(theirs, trained, capsys):
    (trained / "result.json").unlink()
    Path("x.py").write_text(f"{Path('x.py').read_text()}\n")
    assert main(["resume", str(trained), "--local"]) == 2
    errors = capsys.readouterr().err
    assert "changed since the run was started" in errors
    assert ASKED not in errors
    assert not theirs()


@pytest.mark.parametrize("call", [subquad.train, subquad.datasets])
def test_python_runs_no_file_that_only_an_experiment_names(theirs, call):
    Path("data.yaml").write_text(SMALL.replace("name: recall", "name: ./x.py:D"))
    data = {"x": [[0.0, 1.0], [1.0, 0.0]], "y": [0, 1]}
    for target in ("theirs.yaml", "data.yaml"):
        with pytest.raises(UserError):
            call(target, data=data)
        assert not theirs()


def test_a_caller_of_python_names_its_own_file(theirs):
    subquad.mixer("./x.py:Mean", dim=8, num_heads=2)
    assert theirs()


def test_files_go_only_to_storage_that_the_user_gave(tmp_path, capsys):
    """Storage is a setting that may change, so a folder's own may be anything."""
    place = tmp_path / "theirs"
    Path("small.yaml").write_text(SMALL)
    assert main(["train", "small.yaml", "--local", "train.steps=2", "train.epochs=null"]) == 0
    folder = next(Path("runs/small").iterdir())
    (folder / "result.json").unlink()
    experiment = folder / "experiment.yaml"
    experiment.write_text(experiment.read_text().replace("storage: null", f"storage: {place}"))
    capsys.readouterr()
    assert main(["resume", str(folder), "--local"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(
        f"you have neither named it nor trained with it here: if you trust it, add --root {place}"
    )
    assert not place.exists()
    assert main(["resume", str(folder), "--local", "--root", str(place)]) == 0
    assert place.exists()


def test_a_server_whose_name_begins_like_a_given_one_is_not_asked():
    trust.give("https://data.example")
    trust.refuse_strange_place("https://data.example/set.csv")
    for other in ("https://data.example.org/set.csv", "https://data.example:81", "https://data"):
        with pytest.raises(UserError, match="is not asked, as only a file names it"):
            trust.refuse_strange_place(other)


@pytest.mark.ci
def test_storage_that_one_trained_with_needs_no_word(tmp_path):
    place = tmp_path / "ours"
    Path("small.yaml").write_text(SMALL + f"resources: {{storage: {place}}}\n")
    assert main(["train", "small.yaml", "--local", "train.steps=2", "train.epochs=null"]) == 0
    folder = next(Path("runs/small").iterdir())
    (folder / "result.json").unlink()
    assert main(["resume", str(folder), "--local"]) == 0
