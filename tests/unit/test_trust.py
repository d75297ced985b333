"""A plugin's file runs where the user named it, trained with it or trusts it, and never because
a folder names it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_run import SMALL
from wheels import MEAN

import subquad
from subquad import trust
from subquad.cli.main import main
from subquad.errors import PluginError

CANARY = "import pathlib; pathlib.Path({!r}).touch()\n"


@pytest.fixture(autouse=True)
def _nothing_given(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_words", [])
    monkeypatch.setattr(trust, "_here", {})
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def theirs(tmp_path) -> Callable[[], bool]:
    """Somebody's experiment beside a file of theirs; says whether that ran since it was asked
    before.
    """
    canary = tmp_path / "canary"
    Path("x.py").write_text(CANARY.format(str(canary)) + MEAN)
    Path("theirs.yaml").write_text(
        SMALL.replace(
            "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}", "mixer: ./x.py:Mean"
        )
    )

    def ran() -> bool:
        found = canary.exists()
        canary.unlink(missing_ok=True)
        _forget_modules()
        return found

    return ran


def _forget_modules(*others: str) -> None:
    for name in [
        name for name in sys.modules if name.startswith("subquad_source_") or name in others
    ]:
        del sys.modules[name]


LOOKS = [
    ["train", "theirs.yaml", "--dry-run"],
    ["tune", "theirs.yaml", "--space", "optimizer", "--dry-run", "--local"],
    ["bench", "step", "theirs.yaml"],
    ["diagnose", "theirs.yaml"],
    ["bench", "mixers", "--protocol", "rows.yaml"],
]


@pytest.mark.parametrize("words", LOOKS)
def test_looking_at_an_experiment_does_not_run_the_file_that_it_names(theirs, words, capsys):
    Path("rows.yaml").write_text("mixers: ['./x.py:Mean']\nlengths: [8]\n")
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    sha256 = hashlib.sha256(Path("x.py").read_bytes()).hexdigest()
    assert f"--trust {sha256}" in errors
    assert str(Path("x.py").resolve()) in errors
    assert not theirs()


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
def test_what_only_looks_runs_no_file_although_it_is_trusted(theirs, words, code, capsys):
    sha256 = hashlib.sha256(Path("x.py").read_bytes()).hexdigest()
    assert main(["train", "theirs.yaml", "--dry-run", "--trust", sha256]) == 0
    assert theirs()
    Path("task.yaml").write_text(
        SMALL.replace("task: classification", "task: {name: ./x.py:T, params: {a: 1}}")
    )
    Path("dataset.yaml").write_text(SMALL.replace("name: recall", "name: ./x.py:D"))
    assert main(words) == code, capsys.readouterr().err
    assert not theirs()
    assert capsys.readouterr().err.count("\n") == (code == 2)


def test_a_shell_that_writes_names_for_a_star_names_no_file(theirs):
    """A folder may hold a file that is called as one writes a plugin's."""
    Path("x.py:Mean").touch()
    words = [path.name for path in sorted(Path().iterdir())]
    assert "x.py:Mean" in words
    assert main(["diagnose", *words]) == 2
    assert not theirs()


def test_one_word_lets_it_run_wherever_that_stands(theirs, capsys):
    sha256 = hashlib.sha256(Path("x.py").read_bytes()).hexdigest()
    assert main(["train", "theirs.yaml", "--dry-run", "--trust", sha256]) == 0
    assert theirs()
    assert main(["train", "theirs.yaml", "--dry-run"]) == 0
    assert theirs()
    Path("x.py").write_text(f"{Path('x.py').read_text()}\n")
    assert main(["train", "theirs.yaml", "--dry-run"]) == 2
    assert not theirs()
    for wrong in (["--trust", "abc"], ["--trust"], [f"--trust={sha256[:12]}"]):
        assert main([*wrong, "list"]) == 2
    assert "64 hex digits" in capsys.readouterr().err
    place = trust._place()
    assert json.loads(place.read_text()) == {"files": [f"{sha256} {Path().resolve()}"]}
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_the_same_file_beside_other_files_is_another_one(tmp_path, monkeypatch, capsys):
    """A file may import what lies beside it, so what is remembered of it holds in its own
    folder.
    """
    monkeypatch.setattr(sys, "path", [*sys.path])
    own, canary = tmp_path / "work", tmp_path / "canary"
    beside = (
        "import pathlib, sys; sys.path.insert(0, str(pathlib.Path(__file__).parent)); "
        "import beside_it\n"
    )
    (own / "x.py").write_text(beside + MEAN)
    (own / "beside_it.py").write_text("")
    text = SMALL.replace(
        "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}", "mixer: ./x.py:Mean"
    )
    (own / "own.yaml").write_text(text)
    assert main(["train", "own.yaml", "mixer=./x.py:Mean", "--dry-run"]) == 0
    _forget_modules("beside_it")
    assert main(["train", "own.yaml", "--dry-run"]) == 0
    theirs = Path(shutil.copytree(own, tmp_path / "theirs"))
    (theirs / "beside_it.py").write_text(CANARY.format(str(canary)))
    _forget_modules("beside_it")
    linked = Path(shutil.copytree(theirs, tmp_path / "linked"))
    (linked / "x.py").unlink()
    (linked / "x.py").symlink_to(own / "x.py")
    for target in (str(theirs / "own.yaml"), "../theirs/own.yaml", "../linked/own.yaml"):
        assert main(["train", target, "--dry-run"]) == 2
        assert "--trust" in capsys.readouterr().err
    assert main(["train", "../linked/own.yaml", "--dry-run", "backbone.name=./x.py:Mean"]) == 2
    assert not canary.exists()


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
    assert (
        main(
            [
                "train",
                "deep/theirs.yaml",
                "train.lr=0.5",
                "mixer.params={}",
                "dataset.params.path=x.py:Mean",
                "--dry-run",
            ]
        )
        == 2
    )
    assert not theirs()


@pytest.mark.ci
def test_ones_own_work_needs_no_word_and_a_copy_elsewhere_one(
    theirs, tmp_path, monkeypatch, capsys
):
    """Train, resume, predict, verify, eval, export and report; then as somebody else, who has
    the same folder.
    """
    assert main(["train", "theirs.yaml", "--local", "--root", "."]) == 0
    (run,) = Path("runs").glob("*/*")
    looks = [
        ["verify", str(run)],
        ["eval", str(run), "x.py"],
        ["predict", str(run), "x.py"],
        ["resume", str(run), "--local"],
        ["report", str(run)],
    ]
    looks += [["export", str(run), "model"], ["diagnose", str(run)], ["swap", str(run), "softmax"]]
    capsys.readouterr()
    for words in looks:
        _forget_modules()
        main(words)
        assert "--trust" not in capsys.readouterr().err, words
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody"))
    monkeypatch.setattr(trust, "_here", {})
    theirs()
    for words in looks:
        _forget_modules()
        main(words)
        output = "".join(capsys.readouterr())
        assert not theirs(), words
        assert words[0] in ("report", "verify") or "--trust" in output, words
    for folder in (str(run), "model"):
        with pytest.raises(PluginError, match="--trust"):
            subquad.load(folder)
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


@pytest.mark.ci
def test_storage_that_one_trained_with_needs_no_word(tmp_path):
    place = tmp_path / "ours"
    Path("small.yaml").write_text(SMALL + f"resources: {{storage: {place}}}\n")
    assert main(["train", "small.yaml", "--local", "train.steps=2", "train.epochs=null"]) == 0
    folder = next(Path("runs/small").iterdir())
    (folder / "result.json").unlink()
    assert main(["resume", str(folder), "--local"]) == 0
