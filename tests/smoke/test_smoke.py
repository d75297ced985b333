"""A broad and quick look at everything: run before each commit, and against an installed wheel.

Uses the installed packages only, so that it can be copied anywhere.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

import subquad
from subquad.cli.main import main
from subquad_check import check_mixer

TINY = """
name: tiny
dataset:
  name: recall
  params: {num_pairs: 4, num_keys: 6, num_values: 5,
    train_size: 64, validation_size: 32, test_size: 32}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2, ffn_dim: 32, head: last}}
mixer: agf
train: {epochs: 2, batch_size: 16, lr: 1e-3}
tracking: {uri: off}
"""
REFUSED = {
    "train.lr=abc": "train.lr: got 'abc', must be a number > 0",
    "lr=0.1": "lr: unknown key; it belongs at train.lr",
    "mixer=sofmax": "mixer.name: unknown mixer 'sofmax'; did you mean 'softmax'?",
    "mixer.params.ordr=3": "mixer.params.ordr: unknown key; did you mean 'order'?",
    "backbone.params.num_heads=3": "dim 16 is not divisible by num_heads 3",
}
MIXERS = {
    point.name: importlib.import_module(f"{point.module}.about").ABOUT
    for point in entry_points(group="subquad.mixers")
    if point.dist and point.dist.name == "subquad"
}
"""What each built-in mixer says of itself."""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.mark.parametrize("package", ["subquad", "subquad_plugins", "subquad_datasets"])
def test_every_module_can_be_imported(package):
    folder = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.walk_packages(folder, f"{package}.")]
    assert len(names) > 10
    for name in names:
        if name != "subquad.tracking.gate":  # which changes the MLflow that it is imported into
            importlib.import_module(name)


def test_the_command_line_starts_without_heavy_libraries():
    code = (
        "import sys; from subquad.cli.main import main; main(['--help']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
        == 0
    )


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_mixes_and_learns(name):
    torch.manual_seed(0)
    about = MIXERS[name]
    mixer = subquad.mixer(
        name, dim=16, num_heads=2, max_len=9 if about.needs_length else 0, **about.small
    )
    x, keep = torch.randn(2, 9, 16, requires_grad=True), torch.arange(9) < torch.tensor([[9], [6]])
    found = mixer(x, keep=keep, return_output=True)
    assert found.out.shape == x.shape
    torch.stack([loss.sum() for loss in (found.out, *found.losses.values())]).sum().backward()
    assert all(
        tensor.grad is not None for tensor in (x, *mixer.parameters()) if tensor.requires_grad
    )


@pytest.mark.parametrize("name", ["agf", "softmax"])
def test_a_mixer_keeps_its_word(name):
    for case in check_mixer(
        name, {}, only=["shapes", "padding-content", "batch-outputs", "permutation"]
    ):
        case()


def test_a_study_is_trained_and_reported(tiny, capsys):
    assert main(["train", str(tiny), "--local", "matrix.mixer=[agf, identity]"]) == 0
    (study,) = (tiny.parent / "runs" / "tiny").iterdir()
    results = [json.loads(path.read_text()) for path in study.glob("cells/*/result.json")]
    assert [result["status"] for result in results] == ["finished", "finished"]
    capsys.readouterr()
    assert main(["report", str(study)]) == 0
    output = capsys.readouterr().out
    assert "agf" in output
    assert "identity" in output
    assert (study / "report.html").is_file()


def test_train_and_load_from_python(tiny):
    (result,) = subquad.train(tiny, ["train.epochs=1", "mixer=softmax"])
    model = subquad.load(result["folder"])
    assert not model.training


@pytest.mark.parametrize(("override", "said"), REFUSED.items())
def test_a_mistake_is_one_line(tiny, capsys, override, said):
    assert main(["train", str(tiny), "--local", override]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tiny.parent / "runs").exists()


@pytest.mark.parametrize(
    "command", [["list"], ["show", "mixer", "agf"], ["train", "quickstart", "--dry-run"]]
)
def test_what_only_looks_works(command, capsys):
    assert main(command) == 0
    assert "agf" in capsys.readouterr().out
