"""Pictures, tables and texts of one's own: from files to results and answers; all in this
process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pictures import encoded, write_folder
from small_run import digests

import subquad
from subquad.cli.main import main
from subquad.errors import ConfigError, DataError, TrainingFailed

EXPERIMENT = """
name: own
dataset: {{name: {dataset}, params: {{path: {path}}}}}
task: {task}
backbone: {backbone}
mixer: softmax
train: {{epochs: 2, batch_size: 6, lr: 1e-3, log_every: 1}}
tracking: {{uri: off}}
"""
VIT = (
    "{name: timm-vit, params: {model: deit_tiny_patch16_224, patch_size: 8, depth: 1, "
    "dim: 16, num_heads: 2}}"
)
ENCODER = (
    "{name: encoder, params: {num_layers: 1, dim: 8, num_heads: 2, ffn_dim: 16, dropout: 0.0}}"
)
MIXED = [
    "dataset.params.size=16",
    "dataset.params.mixup=0.8",
    "dataset.params.cutmix=1.0",
    "dataset.params.erase=0.5",
]


def train(place: Path, root: Path, *overrides: str) -> tuple[Path, dict[str, Any]]:
    """The run's folder and its result."""
    (result,) = subquad.train(place / "own.yaml", overrides, root=root)
    return Path(result["folder"]), result


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """What a command prints on stdout."""
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Pictures of two classes, and an experiment with mixing."""
    for seed, (part, count) in enumerate({"train": 10, "test": 4}.items()):
        write_folder(tmp_path / "pets" / part, {"cat": count, "dog": count}, seed)
    (tmp_path / "own.yaml").write_text(
        EXPERIMENT.format(dataset="image-folder", path="pets", task="classification", backbone=VIT)
    )
    return tmp_path


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    """Noisy sines in a CSV file with their frequency, whether it is high, and an experiment on
    the frequency.
    """
    generator, rows = np.random.default_rng(0), ["id,x,speed,fast,odd"]
    for number in range(60):
        speed = generator.uniform(0.2, 1.5)
        wave = np.sin(speed * np.arange(generator.integers(8, 14))) + generator.normal(0, 0.1)
        rows += [
            f"w{number},{value:.4f},{speed:.4f},{int(speed > 0.8)},{number % 2}" for value in wave
        ]
    (tmp_path / "walks.csv").write_text("\n".join(rows) + "\n")
    own = EXPERIMENT.format(dataset="table", path="walks.csv", task="regression", backbone=ENCODER)
    given = "{path: walks.csv, channels: [x], labels: [speed], target: values, test_fraction: 0.3}"
    (tmp_path / "own.yaml").write_text(own.replace("{path: walks.csv}", given))
    return tmp_path


@pytest.mark.extended  # loader processes import timm, which takes most of the time
def test_loader_processes_and_workers_change_nothing(pets: Path):
    here, result = train(pets, pets / "a", *MIXED, "train.epochs=1")
    there, _ = train(pets, pets / "b", *MIXED, "train.epochs=1", "train.loader_workers=1")
    assert digests(here) == digests(there)
    two, _ = train(
        pets, pets / "c", *MIXED, "train.epochs=1", "resources.workers=2", "train.micro_batch=2"
    )
    assert curve(two) == pytest.approx(curve(here), rel=1e-4)
    assert result["reference_scores"]["scores"]["accuracy"] == {"majority": 0.5}


def curve(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["metrics"]["loss"] for line in lines if line["kind"] == "train"]


def test_pairs_are_not_parted(pets: Path):
    with pytest.raises(
        ConfigError, match=r"train\.micro_batch: got 3, this data set needs a multiple of 2; use 2"
    ):
        train(pets, pets, *MIXED, "train.micro_batch=3")


def test_unreadable_pictures_are_counted_and_too_many_stop_the_run(pets: Path):
    (pets / "pets/test/cat/000.png").write_bytes(encoded(1)[:90])
    with pytest.raises(
        (DataError, TrainingFailed),
        match=r"1 of 8 samples cannot be read, the last .*test/cat/000\.png",
    ):
        train(pets, pets, "dataset.params.size=16")
    _, result = train(pets, pets / "again", "dataset.params.size=16", "train.max_bad=0.2")
    assert result["test"]["metrics"]["bad_samples"] == 1


def test_answers_to_pictures(pets: Path, capsys: pytest.CaptureFixture[str]):
    run, result = train(pets, pets, "dataset.params.size=16")
    answers = [
        json.loads(line)
        for line in said(capsys, "predict", run, pets / "pets/test/dog").splitlines()
    ]
    assert [set(answer["probabilities"]) for answer in answers] == [{"cat", "dog"}] * 4
    files = sorted((pets / "pets/test/dog").iterdir())
    assert [answer["id"] for answer in answers] == [*map(str, files)]
    scores = json.loads(said(capsys, "eval", run, pets / "pets/test", "--json"))
    assert scores["metrics"]["accuracy"] == result["test"]["metrics"]["accuracy"]


def test_a_number_is_learned_and_answered_by_its_name(
    walks: Path, capsys: pytest.CaptureFixture[str]
):
    run, result = train(walks, walks, "train.epochs=30", "train.lr=1e-2")
    scores, guess = result["test"]["metrics"], result["reference_scores"]["scores"]
    assert scores["mae"] < 0.7 * guess["mae"]["mean"]
    assert set(guess) == {"mae", "rmse", "r2"}
    answers = [
        json.loads(line) for line in said(capsys, "predict", run, walks / "walks.csv").splitlines()
    ]
    ids = pd.read_csv(walks / "walks.csv")["id"].unique()
    assert [answer["id"] for answer in answers] == [*map(str, ids)]
    assert len(answers) == 60
    assert all(0 < answer["speed"] < 2 for answer in answers)
    assert main(["verify", str(run)]) == 0
    report = said(capsys, "report", run)
    assert "Test MAE" in report
    assert "reference: mean" in report


def test_several_labels_are_learned(walks: Path, capsys: pytest.CaptureFixture[str]):
    changes = [
        "dataset.params.target=multilabel",
        "dataset.params.labels=[fast, odd]",
        "task=multilabel",
    ]
    run, result = train(walks, walks, *changes, "train.epochs=30", "train.lr=1e-2")
    scores = result["test"]["metrics"]
    assert (
        scores["mean_average_precision"]
        > result["reference_scores"]["scores"]["mean_average_precision"]["majority"]
    )
    (first, *_) = said(capsys, "predict", run, walks / "walks.csv").splitlines()
    assert set(json.loads(first)["probabilities"]) == {"fast", "odd"}
    assert main(["verify", str(run)]) == 0
    assert "Test mAP (%)" in said(capsys, "report", run)


def test_two_workers_score_the_same(walks: Path):
    changes = [
        "dataset.params.target=multilabel",
        "dataset.params.labels=[fast, odd]",
        "task=multilabel",
    ]
    one_worker, two_workers = (
        train(walks, walks / f"w{n}", *changes, f"resources.workers={n}")[1]["test"]["metrics"]
        for n in (1, 2)
    )
    assert two_workers == pytest.approx(one_worker, rel=1e-5)


def test_a_task_that_does_not_fit_the_target(walks: Path):
    with pytest.raises(
        DataError,
        match="task multilabel needs a data set of several labels, this one labels values",
    ):
        train(walks, walks, "task=multilabel")
    with pytest.raises(
        DataError, match="task classification needs a data set with at least 2 classes"
    ):
        train(walks, walks, "task=classification")


def test_texts_in_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "said").mkdir()
    for part, count in (("train", 30), ("test", 10)):
        rows = [
            f"{word} {number} {part},{word}"
            for number in range(count)
            for word in ("yes", "nö\u200d")
        ]
        (tmp_path / "said" / f"{part}.csv").write_text(
            "\n".join(["text,label", *rows]) + "\n", encoding="utf-8"
        )
    own = EXPERIMENT.format(
        dataset="text-files", path="said", task="classification", backbone=ENCODER
    )
    (tmp_path / "own.yaml").write_text(own)
    changes = ["dataset.params.max_len=16", "train.epochs=10", "train.lr=1e-2"]
    run, result = train(tmp_path, tmp_path, *changes)
    assert result["test"]["metrics"]["accuracy"] > 0.9
    (tmp_path / "one.txt").write_text("nö\u200d 99", encoding="utf-8")
    line = said(capsys, "predict", run, tmp_path / "one.txt")
    assert json.loads(line)["class"] == "nö\u200d"
    assert '"nö\\u200d"' in line, "UTF-8 but for what could steer a terminal"
