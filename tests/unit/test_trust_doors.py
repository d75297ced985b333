"""Every place in a stranger's files that can name code, under every command that reads it: none of
it runs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from small_run import SMALL
from wheels import MEAN

from subquad.cli.main import main
from subquad.experiment.strict_yaml import parse_yaml
from subquad.record import trust

MIXER = "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}"
ENTRY = "{name: ./x.py:Mean, roles: [self], layers: [0]}"
CASE = "name: agf, params: {order: 3}"

DOORS = {
    "mixer": SMALL.replace(MIXER, "mixer: ./x.py:Mean"),
    "absolute": SMALL.replace(MIXER, "mixer: {here}/x.py:Mean"),
    "above": SMALL.replace(MIXER, "mixer: ../given/x.py:Mean"),
    "backbone": SMALL.replace("name: encoder", "name: ./x.py:Mean"),
    "task": SMALL.replace("task: classification", "task: ./x.py:Mean"),
    "dataset": SMALL.replace("name: recall", "name: ./x.py:Mean"),
    "mixers": SMALL + f"mixers: [{ENTRY}]\n",
    "axis": SMALL + "matrix: {mixer: [agf, ./x.py:Mean]}\n",
    "axis of components": SMALL + "matrix: {mixer: [{name: agf}, {name: ./x.py:Mean}]}\n",
    "axis of data sets": SMALL + "matrix: {dataset: [recall, ./x.py:Mean]}\n",
    "axis of keys": SMALL + "matrix: {mixer.name: [agf, ./x.py:Mean]}\n",
    "extends": "extends: ./below.yaml\n",
}
"""Experiments whose code is `x.py`, which lies beside them in a folder `given`."""

COMMANDS = [
    ["train", "TARGET", "--local"],
    ["train", "TARGET", "--dry-run"],
    ["train", "TARGET", "--dry-run", "train.lr=0.1"],
    ["tune", "TARGET", "--space", "optimizer", "--local", "--budget", "1-trials"],
    ["tune", "TARGET", "--space", "optimizer", "--local", "--dry-run"],
    ["data", "show", "TARGET"],
    ["data", "prepare", "TARGET"],
    ["bench", "step", "TARGET"],
    ["diagnose", "TARGET"],
    ["swap", "TARGET", "softmax"],
    ["cluster", "render", "slurm", "TARGET"],
    ["cluster", "render", "kuberay", "TARGET"],
]


@pytest.fixture
def given(tmp_path, monkeypatch) -> Path:
    """A stranger's folder, from the user's own, which is trusted."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_given", [])
    monkeypatch.setattr(trust, "_here", {})
    work, folder = tmp_path / "work", tmp_path / "given"
    work.mkdir()
    folder.mkdir()
    monkeypatch.chdir(work)
    assert main(["trust", "."]) == 0
    canary = f"import pathlib; pathlib.Path({str(tmp_path / 'canary')!r}).touch()\n"
    (folder / "x.py").write_text(canary + MEAN)
    (folder / "below.yaml").write_text(DOORS["mixer"])
    return folder


def ran(folder: Path) -> bool:
    """Whether the stranger's code has run since this was asked before."""
    canary = folder.parent / "canary"
    found = canary.exists()
    canary.unlink(missing_ok=True)
    trust._here.pop("passed", None)
    for name in [name for name in sys.modules if name.startswith("subquad_source_")]:
        del sys.modules[name]
    return found


@pytest.mark.parametrize("door", DOORS)
def test_an_experiment_runs_no_code_of_a_stranger(given, door, capsys):
    target = given / "theirs.yaml"
    target.write_text(DOORS[door].replace("{here}", str(given)))
    for words in COMMANDS:
        code = main([str(target) if word == "TARGET" else word for word in words])
        errors = capsys.readouterr().err
        assert not ran(given), words
        assert code in (0, 2), (words, errors)
        assert "unexpected" not in errors, (words, errors)
    # the door is one: the same runs once the folder is trusted
    assert main(["trust", str(given)]) == 0
    main(["train", str(target), "--dry-run"])
    assert ran(given)


def test_a_space_and_points_run_no_code_of_a_stranger(given):
    (given / "space.yaml").write_text("dims: {mixer.name: {choice: [agf, ./x.py:Mean]}}")
    (given / "points.yaml").write_text("[{mixer.name: ./x.py:Mean}]")
    Path("own.yaml").write_text(SMALL)
    shutil.copy(given / "x.py", "x.py")
    trust.forget_folder(Path())
    tune = ["tune", "own.yaml", "--local", "--dry-run", "--budget", "1-trials"]
    main([*tune, "--space", str(given / "space.yaml")])
    main([*tune, "--space", "optimizer", "--points", str(given / "points.yaml")])
    assert not ran(given)


@pytest.mark.ci
@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("study", [False, True])
def test_kept_folders_run_no_code_of_a_stranger(given, study, capsys):
    """Of runs, studies, searches and exported models, also below a trusted folder."""
    target = given / "theirs.yaml"
    matrix = "matrix: {seed: [0, 1]}\n" if study else ""
    target.write_text(DOORS["mixer"].replace("epochs: 3", "epochs: 1") + matrix)
    assert main(["trust", str(given)]) == 0
    assert main(["train", str(target), "--local", "--root", str(given)]) == 0
    search = ["--space", "optimizer", "--local", "--budget", "1-trials", "final.seeds=1"]
    assert main(["tune", str(target), *search, "--root", str(given)]) == 0
    (run,) = (given / "runs" / "small").iterdir()
    one = next((run / "cells").iterdir()) if study else run
    assert main(["export", str(one), str(given / "model")]) == 0
    assert ran(given)
    place = Path(shutil.move(given / "runs", "theirs"))
    shutil.move(given / "model", "model")
    trust.forget_folder(given)
    (given.parent / "config" / "subquad" / "trusted.json").unlink()
    trust._here.clear()
    assert main(["trust", "."]) == 0
    folders = {path.parent for path in place.rglob("*.yaml")}
    assert len(folders) >= 5
    capsys.readouterr()
    for folder in [*sorted(folders), Path("model")]:
        for verb in ("resume", "verify", "report", "eval", "predict", "export", "diagnose", "runs"):
            more = {"eval": ["x"], "predict": ["x"], "export": ["e"], "resume": ["--local"]}
            main([verb, str(folder), *more.get(verb, [])])
            assert not ran(given), (verb, folder)
        main(["swap", str(folder), "softmax"])
        assert not ran(given), folder
    for file in sorted(place.rglob("*.yaml")):
        if "experiment" in file.name or file.parent.name == "best":
            name = parse_yaml(file.read_text(), "").data["mixer"]["name"]
            assert name.endswith("x.py:Mean")
        main(["train", str(file), "--dry-run"])
        assert not ran(given), file
    assert "unexpected" not in capsys.readouterr().err
