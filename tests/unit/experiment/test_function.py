"""A study that a function of a Python file returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from subquad.errors import ConfigError, PluginError
from subquad.experiment import load_given, load_study

CODE = """
from pathlib import Path

BASE = {
    "dataset": {"name": "uea", "params": {"problem": "ERing", "path": "data"}},
    "task": "classification",
    "backbone": {"name": "encoder", "params": {"dim": 32}},
    "train": {"steps": 10},
}

def pairs():
    Path("ran").touch()
    for mixer in ("agf", "softmax"):
        for seed in (0, 1):
            yield f"{mixer}-{seed}", BASE | {"mixer": mixer, "train.seed": seed}

def experiments():
    Path("ran").touch()
    return [BASE | {"name": "one", "mixer": "agf"}, BASE | {"name": "two", "mixer": "softmax"}]

def raises():
    raise ValueError("no data")

def number():
    return 3

def words():
    return ["agf"]

def path():
    return [("a", BASE | {"mixer": Path("x")})]

def typo():
    return [("a", BASE | {"mixr": "agf"})]

def twice():
    return [("a", BASE | {"mixer": "agf"}), ("A", BASE | {"mixer": "softmax"})]

def slash():
    return [("a/b", BASE | {"mixer": "agf"})]

def nothing():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "table.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pairs_of_a_label_and_settings(folder: Path):
    study = load_given("./below/table.py:pairs")
    assert (study.name, study.single) == ("pairs", False)
    assert [run.label for run in study.runs] == ["agf-0", "agf-1", "softmax-0", "softmax-1"]
    assert [run.experiment.train.seed for run in study.runs] == [0, 1, 0, 1]
    assert study.runs[0].experiment.dataset.params["path"] == str(folder / "below" / "data")
    assert study.runs[0].axes == {"run": "agf-0"}


def test_experiments_are_called_by_their_names(folder: Path):
    study = load_given("./below/table.py:experiments")
    assert [(run.label, run.mixer.found.name) for run in study.runs] == [
        ("one", "agf"),
        ("two", "softmax"),
    ]


def test_the_command_line_comes_last(folder: Path):
    study = load_given("./below/table.py:pairs", ["train.steps=3", "baseline=softmax"])
    assert {run.experiment.train.steps for run in study.runs} == {3}
    assert "\nbaseline: softmax\n" in study.text


def test_the_kept_study_needs_no_function(folder: Path):
    study = load_given("./below/table.py:pairs")
    (folder / "kept.yaml").write_text(study.text)
    (folder / "below" / "table.py").unlink()
    again = load_study("./kept.yaml")
    assert again.runs == study.runs
    assert again.text == study.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "returns no list of experiments: ValueError: no data (./below/table.py:"),
        ("number", "returns no list of experiments: TypeError: 'int' object is not iterable"),
        ("words", "returns no list of experiments: ValueError: "),
        ("path", "returns no list of experiments: TypeError: Object of type PosixPath is not JSON"),
        ("BASE", "returns no list of experiments: TypeError: 'dict' object is not callable"),
        ("pair", "./below/table.py defines no pair; did you mean 'pairs'?"),
        ("a-b", "'a-b' is not a name, write ./file.py:NAME"),
        (
            "typo",
            "./below/table.py:typo: mixr: unknown key; did you mean 'mixer'? (and 1 more) (run a)",
        ),
        ("twice", "./below/table.py:twice: matrix: two runs have the label A"),
        ("slash", "./below/table.py:slash: runs[0].labels.run: got 'a/b', must be text of at most"),
        ("nothing", "./below/table.py:nothing: runs: got [], must be a list of runs"),
    ],
)
def test_what_a_function_cannot_return(folder: Path, name: str, message: str):
    with pytest.raises((ConfigError, PluginError)) as caught:
        load_given(f"./below/table.py:{name}")
    assert message in str(caught.value)
    assert "table.py" in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_only_a_command_names_a_function(folder: Path):
    """Neither a file that extends it nor a loader that no command called makes it run."""
    (folder / "mine.yaml").write_text("extends: ./below/table.py:pairs\n")
    with pytest.raises(ConfigError, match=r"extends: \./below/table\.py:pairs: no such file"):
        load_given("./mine.yaml")
    with pytest.raises(PluginError, match="would run, and you do not trust"):
        load_study("./below/table.py:experiments")
    assert not (folder / "ran").exists()


def test_a_file_with_such_a_name_is_no_function(folder: Path):
    (folder / "below" / "table.py:pairs").write_text("name: x\n")
    with pytest.raises(ConfigError, match="missing"):
        load_given("./below/table.py:pairs")
    assert not (folder / "ran").exists()
