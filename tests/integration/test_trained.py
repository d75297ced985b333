"""`subquad predict`, `eval` and `export` on a run that was trained here; all in this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import subquad
from subquad.cli.main import main
from subquad.errors import CheckpointError, RunError
from subquad.record.files import write_json
from subquad.trained.model import Trained

HEADER = "@problemName Toy\n@dimensions 2\n@classLabel true up down\n@data\n"
TOY = """
name: toy
protocol: fixed
dataset: {{name: uea, params: {{problem: Toy, path: {data}}}}}
task: classification
backbone:
  name: encoder
  params: {{num_layers: 1, dim: 8, num_heads: 2, ffn_dim: 16, dropout: 0.1, head: last}}
mixer: {{name: agf, params: {{order: 2}}}}
train: {{epochs: 4, batch_size: 8, lr: 1e-2}}
tracking: {{uri: off}}
"""


def series(count: int, seed: int, *, labelled: bool = True) -> str:
    """Rising and falling ramps of 3 to 7 steps, with noise."""
    generator, rows = np.random.default_rng(seed), list[str]()
    for number in range(count):
        ramp = np.linspace(-1, 1, generator.integers(3, 8)) * (1 if number % 2 else -1)
        channels = [
            ",".join(f"{value:.4f}" for value in ramp + generator.normal(0, 0.3, len(ramp)))
            for _ in range(2)
        ]
        rows.append(":".join([*channels, *([("down", "up")[number % 2]] if labelled else [])]))
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, the run `run`, and the files `test.ts` and `plain.ts` of the same
    series.
    """
    root = tmp_path_factory.mktemp("trained")
    data = root / "data" / "Toy"
    data.mkdir(parents=True)
    (data / "Toy_TRAIN.ts").write_text(HEADER + series(40, 0))
    (data / "Toy_TEST.ts").write_text(HEADER + series(21, 1))
    shutil.copy(data / "Toy_TEST.ts", root / "test.ts")
    (root / "plain.ts").write_text(
        "@dimensions 2\n@classLabel false\n@data\n" + series(21, 1, labelled=False)
    )
    (root / "toy.yaml").write_text(TOY.format(data=root / "data"))
    (result,) = subquad.train(root / "toy.yaml", [], root=root)
    Path(result["folder"]).rename(root / "run")
    return root


def said(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> str:
    """What a command prints on stdout, or where it fails the one line on stderr."""
    assert main([str(argument) for argument in arguments]) == code
    found = capsys.readouterr()
    assert not code or (found.out == "" and found.err.count("\n") == 1)
    return found.err if code else found.out


def test_answers_stand_in_the_order_of_the_file(place, capsys):
    lines = [
        json.loads(line)
        for line in said(capsys, "predict", place / "run", place / "plain.ts").splitlines()
    ]
    trained = Trained.of(place / "run", "best")
    split = trained.dataset.open_file(place / "test.ts", labelled=True)
    batch = trained.parts.on_device(split.fetch(np.arange(21), epoch=0, seed=0))
    shares = trained.parts.bare_model(batch).outputs.softmax(-1)
    assert [line["class"] for line in lines] == [
        ("down", "up")[place] for place in shares.argmax(-1).tolist()
    ]
    found = torch.tensor(
        [[line["probabilities"][name] for name in ("down", "up")] for line in lines]
    )
    torch.testing.assert_close(found, shares, atol=1e-5, rtol=0)


def test_answers_in_a_file_are_those_on_stdout_whatever_the_batches(place, capsys, tmp_path):
    whole = said(capsys, "predict", place / "run", place / "test.ts", "--which", "last")
    out = tmp_path / "new" / "answers.jsonl"
    said(
        capsys,
        "predict",
        place / "run",
        place / "plain.ts",
        "--which",
        "last",
        "--out",
        out,
        "--batch-size",
        "4",
    )
    kept = [json.loads(line)["class"] for line in out.read_text().splitlines()]
    assert kept == [json.loads(line)["class"] for line in whole.splitlines()]
    assert [path.name for path in out.parent.iterdir()] == ["answers.jsonl"]


def test_scores_of_the_test_file_are_the_results_and_nothing_is_opened(place, capsys):
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    found = json.loads(said(capsys, "eval", place / "run", place / "test.ts", "--json"))
    result = json.loads((place / "run" / "result.json").read_text())
    assert found["metrics"] == pytest.approx(result["test"]["metrics"])
    assert (found["samples"], found["is_result"], found["checkpoint"]) == (21, False, "best")
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == files
    lines = said(capsys, "eval", place / "run", place / "test.ts").splitlines()
    assert lines[0].endswith("; a score of this file, no result of the run")
    assert f"accuracy (%) {100 * found['metrics']['accuracy']:.2f}" in lines


def test_mistakes_are_one_line(place, capsys, tmp_path, small):
    assert "@classLabel must be: true" in said(
        capsys, "eval", place / "run", place / "plain.ts", code=2
    )
    assert "does not exist" in said(
        capsys, "predict", place / "run", tmp_path / "nothing.ts", code=2
    )
    assert "not a run (no experiment.yaml)" in said(
        capsys, "predict", tmp_path, place / "plain.ts", code=2
    )
    (tmp_path / "one.ts").write_text("@dimensions 1\n@classLabel false\n@data\n1,2,3\n")
    assert "1 channels, TRAIN has 2" in said(
        capsys, "predict", place / "run", tmp_path / "one.ts", code=2
    )
    assert "exists; give a new folder" in said(capsys, "export", place / "run", tmp_path, code=2)
    copied = shutil.copytree(place / "run", tmp_path / "run")
    for weights in copied.glob("checkpoints/step-*/model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1])
    assert "model.safetensors has changed" in said(
        capsys, "predict", copied, place / "plain.ts", code=2
    )
    shutil.rmtree(copied / "checkpoints")
    output = said(capsys, "export", copied, tmp_path / "new", code=2)
    assert "the best checkpoint is that of step 20" in output
    assert "step-00000020: is not here" in output
    (copied / "result.json").unlink()
    assert "no checkpoint yet" in said(capsys, "export", copied, tmp_path / "new", code=2)
    assert not (tmp_path / "new").exists()
    (folder,) = [
        Path(result["folder"]) for result in subquad.train(small, ["train.epochs=1"], root=tmp_path)
    ]
    output = said(capsys, "predict", folder, place / "plain.ts", code=2)
    assert "data set Recall reads no files of its users" in output


@pytest.fixture
def exported(place, tmp_path, capsys) -> Path:
    said(capsys, "export", place / "run", tmp_path / "model")
    return tmp_path / "model"


def test_an_exported_folder_needs_neither_run_nor_data(place, exported, monkeypatch, tmp_path):
    batch = {"inputs": torch.randn(3, 7, 2), "keep": torch.ones(3, 7, dtype=torch.bool)}
    wanted = subquad.load(place / "run")(batch).outputs
    (place / "data").rename(place / "gone")
    try:
        model = subquad.load(exported)
    finally:
        (place / "gone").rename(place / "data")
    assert not model.training
    assert torch.equal(model(batch).outputs, wanted)
    assert load_file(exported / "model.safetensors").keys() == model.state_dict().keys()
    assert str(place / "run") not in (exported / "config.json").read_text()
    assert sorted(path.name for path in exported.parent.iterdir()) == ["model"]
    with pytest.raises(TypeError, match="a model takes a batch"):
        model(batch["inputs"])


def test_a_damaged_export_is_refused(exported):
    config, weights = exported / "config.json", exported / "model.safetensors"
    text = config.read_text()
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(
        CheckpointError,
        match=r"model.safetensors has changed: its sha256 differs from its manifest",
    ):
        subquad.load(exported)
    for wrong, reason in (
        ("{", "config.json: "),
        (text.replace('"num_outputs": 2', '"num_outputs": 3'), "config.json"),
    ):
        config.write_text(wrong)
        with pytest.raises(RunError, match=reason):
            subquad.load(exported)
    write_json(config, {"format": 2})
    with pytest.raises(RunError, match=r"config\.json: format: input should be 1"):
        subquad.load(exported)


def test_a_program_takes_any_number_of_samples(place, tmp_path, capsys):
    said(capsys, "export", place / "run", tmp_path / "model", "--format", "torch-export")
    batch = {
        "inputs": torch.randn(5, 7, 2),
        "keep": torch.arange(7) < torch.tensor([[7], [1], [3], [7], [5]]),
    }
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    wanted = subquad.load(tmp_path / "model")(batch).outputs
    torch.testing.assert_close(
        program(batch["inputs"], batch["keep"]), wanted, atol=1e-5, rtol=1e-5
    )
