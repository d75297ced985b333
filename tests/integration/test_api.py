"""The Python API, and runs that end in somebody's bug."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command import cli
from result_file import read_result
from small_run import only_run

import subquad
from subquad.cli.main import main
from subquad.errors import ConfigError, RunError
from subquad.experiment import Run, load_study
from subquad_check.new import package_files

BROKEN = '''
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Broken(TokenMixer):
    """Fails in its third forward pass."""

    Config = MixerConfig
    facts = Facts()
    calls = 0

    def __init__(self, config, site):
        super().__init__()

    def forward(self, x, *, keep=None, carry=None):
        Broken.calls += 1
        if Broken.calls == 3:
            raise ZeroDivisionError("a bug of the mixer's own")
        return x * 0.5
'''


def test_a_mixer_from_python():
    mixer = subquad.mixer("agf", dim=16, num_heads=2, order=4)
    assert mixer(torch.randn(2, 5, 16)).shape == (2, 5, 16)
    with pytest.raises(ConfigError, match=r"ordr: unknown key; did you mean 'order'\?"):
        subquad.mixer("agf", dim=16, ordr=4)


def test_a_module_that_knows_nothing_of_subquad_trains_and_is_loaded(small, tmp_path):
    file = tmp_path / "own.py"
    file.write_text("from torch.nn import GRU, MultiheadAttention\n")
    names = [f"{file}:GRU", f"{file}:MultiheadAttention", "identity"]
    words = ["train.epochs=1", f"matrix.mixer=[{', '.join(names)}]"]
    results = subquad.train(small, words, root=tmp_path)
    assert [result["status"] for result in results] == ["finished"] * 3
    model = subquad.load(results[0]["folder"])
    assert any(isinstance(module, torch.nn.GRU) for module in model.modules())
    with pytest.raises(ConfigError, match="GRU' with these parameters does not claim to be padd"):
        subquad.train(small, [f"mixer={file}:GRU", "train.bucket_batches=2"], root=tmp_path)


def test_train_and_load(small, tmp_path):
    (result,) = subquad.train(small, ["train.epochs=1"], root=tmp_path)
    assert result["status"] == "finished"
    model = subquad.load(result["folder"])
    assert not model.training
    with pytest.raises(TypeError, match=r"a model takes a batch: .* got a Tensor"):
        model(torch.zeros(2, 8))
    assert (
        sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        == result["parameters"]
    )
    with pytest.raises(RunError, match=r"not a run \(no experiment.yaml\)"):
        subquad.load(tmp_path)
    with pytest.raises(RunError, match="must be 'best' or 'last'"):
        subquad.load(result["folder"], which="newest")


def test_a_dry_run_refuses_a_store_as_a_run_does(small, tmp_path, capsys):
    store = [f"tracking.uri=file:{tmp_path}"]
    assert main(["train", str(small), "--local", "--dry-run", *store]) == 2
    printed = capsys.readouterr()
    assert "tracking.uri: 'file:" in printed.err
    assert printed.out == ""
    assert main(["train", str(small), "--local", *store]) == 2
    assert capsys.readouterr().err == printed.err


def test_data_set_and_task_from_files_travel_with_the_run(small, tmp_path):
    for kind, name in (("dataset", "waves"), ("task", "balanced")):
        (tmp_path / f"{name}.py").write_text(package_files(kind, name)[f"{name}.py"])
    files = [
        f"task={tmp_path}/balanced.py:Balanced",
        f"matrix.dataset=[recall, {tmp_path}/waves.py:Waves]",
    ]
    on_recall, on_waves = subquad.train(small, ["train.epochs=1", *files], root=tmp_path)
    run = load_study(str(small), files).runs[1]
    assert (
        on_recall["test"]["metrics"].keys()
        == on_waves["test"]["metrics"].keys()
        == {"balanced_accuracy", "loss"}
    )
    for name in ("waves", "balanced"):
        (tmp_path / f"{name}.py").unlink()
    assert Path(on_waves["folder"]).name == "waves-256"
    again = Run.rebuild(run.as_values())
    assert (again.digest, again.goal.metric, again.dataset_label) == (
        run.digest,
        "balanced_accuracy",
        "waves-256",
    )
    assert run.sources.keys() == {("dataset",), ("task",)}
    subquad.load(on_waves["folder"])  # by the copies that it keeps


def test_a_mixers_bug_ends_its_run_and_no_other(small, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    study = "matrix.mixer=[./broken.py:Broken, identity]"
    done = cli(["train", str(small), study, "train.epochs=1", "--local"], tmp_path, check=1)
    assert "Traceback" not in done.stderr + done.stdout
    assert "ZeroDivisionError: a bug of the mixer's own" in done.stdout
    cells = only_run(tmp_path) / "cells"
    broken, good = (read_result(cells / name) for name in ("Broken", "identity"))
    assert broken["status"] == "failed"
    assert "traceback in" in broken["reason"]
    assert "line" in (cells / "Broken" / "error.txt").read_text()
    assert good["status"] == "finished"


def test_a_changed_source_file_is_not_resumed(small, tmp_path):
    (tmp_path / "own.py").write_text(BROKEN.replace("== 3", "== -1"))
    arguments = ["train", str(small), "mixer=./own.py:Broken", "--local"]
    cli(arguments, tmp_path, fault="kill@step:20", check=-9)
    run = only_run(tmp_path)
    (tmp_path / "own.py").write_text(BROKEN.replace("== 3", "== -2"))
    done = cli(["resume", str(run), "--local"], tmp_path, check=2)
    assert f"changed since the run was started: {tmp_path / 'own.py'}" in done.stderr
    (tmp_path / "own.py").write_text(BROKEN.replace("== 3", "== -1"))
    cli(["resume", str(run), "--local"], tmp_path)
    assert read_result(run)["attempts"] == 2
