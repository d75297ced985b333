"""Loss scaling, log cutting, attempts, generators, named tensors."""

import json
import math
import random

import numpy as np
import pytest
import torch
from subquad.record.names import ATTEMPTS, METRICS
from torch import nn

from subquad.engine import attempts
from subquad.engine.attempts import Attempt, _failures
from subquad.engine.log import MetricsLog
from subquad.engine.optim import LossScaler, build_optimizer
from subquad.engine.state import Progress, _progress
from subquad.engine.tensors import (
    generator_states,
    load_generators,
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
    seed_everything,
)
from subquad.errors import CheckpointError
from subquad.experiment.schema import Train
from subquad.plan import Permutation, PlanSettings
from subquad.record.files import append_line
from subquad.record.metrics import Record, metrics_files, read_records


def test_the_scaler_backs_off_grows_and_knows_its_floor():
    scaler = LossScaler.of(Train(precision="fp16"))
    assert scaler.scale == 2.0**16
    assert scaler.absorbs(False, True)
    assert scaler.scale == 2.0**15
    for _ in range(LossScaler.INTERVAL):
        assert not scaler.absorbs(True, True)
    assert scaler.scale == 2.0**16
    scaler.scale = 1.0
    assert not scaler.absorbs(False, True), "a non-finite step at scale 1 is a failure"
    assert scaler.scale == 1.0
    assert not LossScaler.of(Train()).absorbs(False, True)
    scaler.scale = 2.0**10
    assert not scaler.absorbs(False, False), "a non-finite loss is a failure at any scale"
    assert scaler.scale == 2.0**10


def test_each_attempt_has_its_file_and_its_steps_take_the_place_of_earlier_ones(tmp_path):
    plan = Permutation(100, PlanSettings(10, 0, epochs=1))
    log = MetricsLog(tmp_path, 1, plan)
    for step in range(1, 6):
        log.add(
            "train", Progress(step=step, seconds=1.0), {"loss": float("inf") if step == 2 else 1.0}
        )
    log.close()
    with (tmp_path / METRICS).open("a") as stream:
        stream.write('{"kind": "tra')
    first = (tmp_path / METRICS).read_bytes()
    assert len(read_records(tmp_path)) == 5
    again = MetricsLog(tmp_path, 2, plan)
    again.add("event", Progress(step=3, seconds=1.0), text="resumed")
    assert [record.step for record in read_records(tmp_path)] == [1, 2, 3, 4, 5, 3]
    again.add("train", Progress(step=4, seconds=1.0), {"loss": 2.0})
    again.close()
    records = read_records(tmp_path)
    assert [record.step for record in records] == [1, 2, 3, 3, 4]
    assert [record.epoch for record in records] == [0.1, 0.2, 0.3, 0.3, 0.4]
    assert [record.attempt for record in records] == [1, 1, 1, 2, 2]
    assert records[1].metrics["loss"] == float("inf")
    assert (tmp_path / METRICS).read_bytes() == first
    for line in (tmp_path / "metrics-2.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_files_of_a_strange_folder_with_nearly_such_names_are_left(tmp_path):
    for name in ("metrics-01.jsonl", "metrics-1.jsonl", "metrics-\u0663.jsonl", "metrics-x.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert metrics_files(tmp_path) == []
    names = ["metrics.jsonl", "metrics-2.jsonl", "metrics-10.jsonl"]
    for name in reversed(names):
        (tmp_path / name).touch()
    assert [path.name for path in metrics_files(tmp_path)] == names


def test_records_survive_a_round_trip():
    record = Record(
        kind="eval", step=1, epoch=0.5, seconds=2.0, time=3.0, split="test", metrics={"a": 0.25}
    )
    assert Record.parse(record.line()) == record


def test_attempts_count_failures_at_one_place_in_one_launch(tmp_path):
    for number, (step, launch) in enumerate(
        [(0, "a"), (0, "b"), (0, "b"), (7, "b"), (7, "b")], start=1
    ):
        append_line(tmp_path / ATTEMPTS, vars(Attempt(number, step, launch, 1, 1)))
    with (tmp_path / "attempts.jsonl").open("a") as stream:
        stream.write('{"torn')
    found = attempts.read(tmp_path)
    assert len(found) == 5
    assert _failures(found, "b", 7) == 2
    assert _failures(found, "b", 0) == 0
    assert _failures(found, "a", 7) == 0
    assert _failures(found[:3], "b", 0) == 2


def test_generators_go_on_where_they_were():
    seed_everything(5, 1)
    states, numbers = generator_states()
    numbers = json.loads(json.dumps(numbers))
    first = (random.random(), np.random.rand(), torch.rand(3))
    seed_everything(6)
    load_generators(states, numbers)
    again = (random.random(), np.random.rand(), torch.rand(3))
    assert first[:2] == again[:2]
    assert torch.equal(first[2], again[2])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_tied_weights_are_stored_once_and_scratch_not_at_all():
    names = set(model_tensors(Tied()))
    assert names == {
        "embed.weight",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }


@pytest.mark.parametrize("name", ["adamw", "radam", "sgd"])
def test_model_and_optimizer_go_on_bit_for_bit(name):
    def make():
        torch.manual_seed(0)
        model = Tied()
        return model, build_optimizer(Train(optimizer=name, lr=0.1), model)

    def advance(model, optimizer):
        optimizer.zero_grad()
        model.norm(model.head(torch.ones(3, 4)) @ model.embed.weight).square().sum().backward()
        optimizer.step()

    model, optimizer = make()
    for _ in range(7):
        advance(model, optimizer)
    other, other_optimizer = make()
    load_model(other, model_tensors(model))
    load_optimizer(other_optimizer, optimizer_tensors(optimizer))
    advance(model, optimizer)
    advance(other, other_optimizer)
    assert all(
        torch.equal(tensor, model_tensors(other)[key])
        for key, tensor in model_tensors(model).items()
    )


def test_another_model_is_refused_by_name():
    with pytest.raises(
        CheckpointError, match=r"holds another model: embed\.weight, .* and 1 more differ"
    ):
        load_model(Tied(), {})


def test_nan_is_never_best():
    progress = Progress()
    found = lambda value, step: {"step": step, "metrics": {"accuracy": value}}  # noqa: E731
    assert not progress.evaluated(found(float("nan"), 1), "accuracy", "max")
    assert progress.evaluated(found(0.5, 2), "accuracy", "max")
    assert not progress.evaluated(found(0.5, 3), "accuracy", "max")
    assert not progress.evaluated(found(float("inf"), 4), "accuracy", "max")
    assert progress.best["step"] == 2
    assert progress.stale == 2
    assert progress.evaluated(found(0.4, 5), "accuracy", "min")


def test_of_equal_evaluations_the_one_with_the_lower_loss_is_best():
    def found(accuracy, loss, step):
        return {
            "step": step,
            "epoch": step,
            "split": "validation",
            "metrics": {"accuracy": accuracy, "loss": loss},
        }

    progress = Progress()
    assert progress.evaluated(found(0.5, 1.0, 1), "accuracy", "max")
    assert not progress.evaluated(found(0.5, 1.0, 2), "accuracy", "max")
    assert progress.evaluated(found(0.5, 0.9, 3), "accuracy", "max")
    assert not progress.evaluated(found(0.4, 0.1, 4), "accuracy", "max")
    assert progress.evaluated(found(0.6, 2.0, 5), "accuracy", "max")
    assert progress.best["step"] == 5


def test_what_a_newer_version_added_is_passed_over(tmp_path):
    record = Record(
        kind="eval",
        step=3,
        epoch=1.0,
        seconds=2.0,
        time=0.0,
        metrics={"loss": math.nan, "accuracy": 0.5},
    )
    append_line(tmp_path / METRICS, {**vars(record), "colour": "blue"})
    append_line(tmp_path / ATTEMPTS, {**vars(Attempt(4, 2, "one", 1, 1)), "colour": "blue"})
    (found,) = read_records(tmp_path)
    assert (found.step, found.metrics["accuracy"], math.isnan(found.metrics["loss"])) == (
        3,
        0.5,
        True,
    )
    assert attempts.read(tmp_path) == [Attempt(4, 2, "one", 1, 1)]
    assert _progress({"step": 7, "colour": "blue"}) == Progress(step=7)
