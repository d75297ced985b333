"""What `subquad predict` writes of a task's answers, and why a model is no program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tables import TableDecoder

from subquad.data import DataSpec
from subquad.engine.model import build_model
from subquad.errors import ConfigError, PluginError
from subquad.experiment import checked_run, parse
from subquad.nn import Backbone, ModelOutput
from subquad.record.files import write_output
from subquad.registry import find_plugins, resolve
from subquad.reports.text import metric_lines
from subquad.trained.export import _write_program
from subquad.trained.model import _rows

SPEC = DataSpec.tokens(
    4, 9, class_names=("a", "b"), num_classes=2, text=lambda ids: "-".join(map(str, ids))
)


def test_text_classes_probabilities_and_numbers():
    decoded = {
        "text": torch.tensor([[1, 2], [3, 0]]),
        "class": torch.tensor([1, 0]),
        "probabilities": torch.tensor([[0.25, 0.75], [1.0, 0.0]]),
        "norm": torch.tensor([0.5, 2.0], dtype=torch.bfloat16),
    }
    assert list(_rows(SPEC, decoded, 2)) == [
        {"text": "1-2", "class": "b", "probabilities": {"a": 0.25, "b": 0.75}, "norm": 0.5},
        {"text": "3-0", "class": "a", "probabilities": {"a": 1.0, "b": 0.0}, "norm": 2.0},
    ]


def test_positions_without_a_class_have_none():
    decoded = {"class": torch.tensor([[0, 1, -1]]), "probabilities": torch.full((1, 3, 2), 0.5)}
    (row,) = _rows(SPEC, decoded, 1)
    assert row["class"] == ["a", "b", None]
    assert row["probabilities"] == [{"a": 0.5, "b": 0.5}] * 3


def test_without_names_numbers_stay():
    bare = DataSpec.tokens(4, 9)
    assert list(_rows(bare, {"text": torch.tensor([[1]]), "class": torch.tensor([1])}, 1)) == [
        {"text": [1], "class": 1}
    ]
    assert list(_rows(bare, torch.zeros(2, 1), 2)) == [{"outputs": [0.0]}, {"outputs": [0.0]}]


@pytest.mark.parametrize(
    "decoded", [(torch.zeros(2),), {"class": 3}, {"class": torch.zeros(3)}, torch.tensor(1.0)]
)
def test_answers_that_cannot_be_written(decoded):
    with pytest.raises(PluginError, match="its answers cannot be written"):
        list(_rows(SPEC, decoded, 2))


class Fixed(Backbone):
    """Takes the number of samples for a constant."""

    def forward(self, batch):
        return ModelOutput(batch["inputs"].float() * float(len(batch["inputs"])))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (TableDecoder(torch.zeros(1, 1, 3, 3)), "writes in a loop over tokens"),
        pytest.param(Fixed(), "not possible with this model", marks=pytest.mark.ci),
    ],
)
def test_what_is_no_program_is_refused_in_one_line(model, reason, tmp_path: Path):
    with pytest.raises(ConfigError, match=f"--format torch-export: .*{reason}") as raised:
        _write_program(model, SPEC.example(3), tmp_path / "model.pt2")
    assert "\n" not in str(raised.value)


@pytest.mark.extended
@pytest.mark.parametrize(
    "name", [found.name for found in find_plugins("mixer") if found.distribution == "subquad"]
)
def test_every_mixer_is_a_program_for_any_number_of_padded_samples(name, tmp_path: Path):
    experiment = {
        "dataset": {"name": "subquad:copy"},
        "task": {"name": "subquad:classification"},
        "backbone": {
            "name": "subquad:encoder",
            "params": {"num_layers": 1, "dim": 8, "num_heads": 2},
        },
        "mixer": {"name": f"subquad:{name}"},
    }
    spec = DataSpec.series(65, 3, num_classes=2)
    model = build_model(checked_run(parse(experiment)), spec, 2).eval()
    _write_program(model, spec.example(3), tmp_path / "model.pt2")


def test_scores_with_their_intervals():
    scores = {
        "rougeL": 0.2231,
        "rougeL_low": 0.21,
        "rougeL_high": 0.235,
        "loss": 2.5,
        "loss_low": 1.0,
    }
    reports = resolve("task", "summarization").plugin.reports
    assert metric_lines(scores, reports) == ["ROUGE-L 22.31 [21.0, 23.5]", "loss 2.5", "loss_low 1"]


def test_answers_go_into_a_pipe_which_stays_one(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_output(path, "{}\n")
    assert os.read(end, 9) == b"{}\n"
    assert path.is_fifo()
    os.close(end)
