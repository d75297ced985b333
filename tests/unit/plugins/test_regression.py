"""Regression: losses, sums that add up, and scores that are scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from subquad.data import DataSpec
from subquad.errors import DataError, PluginError
from subquad_plugins.regression import PLUGIN, Config
from subquad_plugins.regression.task import Regression

VALUES = {"wind": (10.0, 2.0), "rain": (-1.0, 0.5)}


def task(values: dict[str, tuple[float, float]] = VALUES, **params: str) -> Regression:
    return Regression(
        Config.model_validate(params), DataSpec.series(4, 1, target="values", values=values)
    )


def sample(count: int = 30, seed: int = 0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    drawn = torch.randn(2, count, 2, generator=torch.Generator().manual_seed(seed))
    scale = torch.tensor(list(VALUES.values()))
    return drawn[0], {"labels": drawn[1] * scale[:, 1] + scale[:, 0]}


def predicted(outputs: torch.Tensor) -> np.ndarray:
    mean, deviation = np.array(list(VALUES.values())).T
    return outputs.double().numpy() * deviation + mean


@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
def test_losses_are_of_labels_in_deviations(name: str):
    outputs, batch = sample()
    wanted = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}[name]
    scaled = (batch["labels"] - torch.tensor([10.0, -1.0])) / torch.tensor([2.0, 0.5])
    loss, weight = task(loss=name).loss(outputs, batch)
    torch.testing.assert_close(loss / weight, wanted(outputs, scaled))
    assert float(weight) == task().weight(batch) == 60


def test_scores_are_those_of_scikit_learn():
    outputs, batch = sample()
    labels, guess = batch["labels"].double().numpy(), predicted(outputs)
    found = task().metrics(task().sums(outputs, batch))
    assert found["mae"] == pytest.approx(mean_absolute_error(labels, guess), rel=1e-9)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(labels, guess), rel=1e-9)
    assert found["r2"] == pytest.approx(r2_score(labels, guess), rel=1e-9)
    again = task().rescore(task().per_sample(outputs, batch))
    assert again == pytest.approx({name: found[name] for name in again}, rel=1e-12)


def test_missing_labels_take_no_part():
    outputs, batch = sample()
    outputs.requires_grad_()
    labels = batch["labels"].clone()
    labels[::3, 0] = torch.nan
    known = ~labels[:, 0].isnan()
    found = task().metrics(task().sums(outputs.detach(), {"labels": labels}))
    assert task().weight({"labels": labels}) == 50
    errors = np.abs(predicted(outputs.detach()) - labels.double().numpy())
    assert found["mae"] == pytest.approx(np.mean([errors[known, 0].mean(), errors[:, 1].mean()]))
    loss, _ = task().loss(outputs, {"labels": labels})
    loss.backward()
    assert outputs.grad is not None
    assert not outputs.grad[~known, 0].any()
    assert bool(outputs.grad[known].all())


def test_a_value_without_labels_or_of_one_label_is_left_out():
    outputs, batch = sample()
    none = torch.stack([batch["labels"][:, 0], torch.full((30,), torch.nan)], 1)
    only = Regression(
        Config(), DataSpec.series(4, 1, target="values", values={"wind": VALUES["wind"]})
    )
    found = task().metrics(task().sums(outputs, {"labels": none}))
    assert found == pytest.approx(only.metrics(only.sums(outputs[:, :1], {"labels": none[:, :1]})))
    same = torch.full((30, 2), 0.1)
    assert math.isnan(task().metrics(task().sums(outputs, {"labels": same}))["r2"])


@settings(max_examples=20)
@given(cut=st.integers(1, 29), seed=st.integers(0, 100))
def test_sums_add_up_over_batches(cut: int, seed: int):
    outputs, batch = sample(seed=seed)
    pieces = [
        (outputs[part], {"labels": batch["labels"][part]})
        for part in (slice(cut), slice(cut, None))
    ]
    found = [task().sums(*piece) for piece in pieces]
    added = {name: found[0][name] + found[1][name] for name in found[0]}
    assert task().metrics(added) == pytest.approx(
        task().metrics(task().sums(outputs, batch)), rel=1e-6
    )


def test_answers_are_named_and_in_units_of_the_labels():
    class Constant:
        def __call__(self, _: object) -> object:
            return type("Output", (), {"outputs": torch.ones(3, 2)})

    answers = task().decode(Constant(), {})  # type: ignore[arg-type]
    assert {name: answer.tolist() for name, answer in answers.items()} == {
        "wind": [12.0] * 3,
        "rain": [-0.5] * 3,
    }


def test_the_best_is_chosen_by_the_loss_and_tables_compare_errors():
    assert (PLUGIN.metric, PLUGIN.mode, list(PLUGIN.tested)) == (
        "loss",
        "min",
        ["mae", "rmse", "r2"],
    )


def test_what_is_refused():
    with pytest.raises(
        DataError, match="task regression needs a data set of values, this one labels class"
    ):
        Regression(Config(), DataSpec.series(4, 1, num_classes=2))
    with pytest.raises(
        PluginError, match=r"outputs of shape \(30, 3\) do not fit labels of shape \(30, 2\)"
    ):
        task().loss(torch.zeros(30, 3), sample()[1])
    with pytest.raises(ValueError, match="the answers are no 2 numbers for each sample"):
        task().rescore({"predicted": torch.full((2, 2), torch.nan), "label": torch.zeros(2, 2)})
