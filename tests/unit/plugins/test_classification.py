"""Classification: loss, sums that add up exactly, metrics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subquad.data import DataSpec
from subquad.errors import DataError, PluginError
from subquad_plugins.classification import PLUGIN, Config
from subquad_plugins.classification.task import Classification


def task(classes: int = 3, **params) -> Classification:
    return Classification(Config(**params), DataSpec.series(max_len=4, channels=1, num_classes=classes))


def sample(count: int = 12, classes: int = 3) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(count, classes, generator=generator)
    return outputs, {"labels": torch.randint(classes, (count,), generator=generator)}


def test_loss_is_the_sum_over_samples_and_its_weight_their_number():
    outputs, batch = sample()
    loss, weight = task().loss(outputs, batch)
    torch.testing.assert_close(loss / weight, F.cross_entropy(outputs, batch["labels"]))
    assert float(weight) == task().weight(batch) == 12.0


def positions() -> tuple[Classification, torch.Tensor, dict[str, torch.Tensor]]:
    """Five labelled positions, three and two of a sample."""
    spec = DataSpec.tokens(max_len=4, vocab_size=9, num_classes=3, target="positions")
    outputs = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    return Classification(Config(), spec), outputs, {"labels": torch.tensor([[0, -1, 2, 1], [-1, 2, 2, -1]])}


def test_labelled_positions_are_cases_like_samples():
    by_position, outputs, batch = positions()
    labelled = batch["labels"] >= 0
    cases = {"labels": batch["labels"][labelled]}
    loss, weight = by_position.loss(outputs, batch)
    torch.testing.assert_close(loss, task().loss(outputs[labelled], cases)[0])
    assert float(weight) == by_position.weight(batch) == 5.0
    sums, expected = by_position.sums(outputs, batch), task().sums(outputs[labelled], cases)
    assert torch.equal(sums["confusion"], expected["confusion"])
    assert float(sums["loss"]) == float(expected["loss"])


def test_positions_without_a_label_take_no_part():
    by_position, outputs, batch = positions()
    outputs.requires_grad_()
    by_position.loss(outputs, batch)[0].backward()
    assert outputs.grad is not None
    assert torch.equal((outputs.grad != 0).any(-1), batch["labels"] >= 0)
    rows = by_position.per_sample(outputs, batch)
    assert torch.equal(rows["predicted"] >= 0, rows["label"] >= 0)
    nothing = {"labels": torch.full((2, 4), -1)}
    assert float(by_position.loss(outputs.detach(), nothing)[0]) == by_position.weight(nothing) == 0.0


def test_outputs_that_are_not_of_what_is_labelled_are_refused():
    by_position, outputs, batch = positions()
    message = r"task classification: outputs of shape \(2, 3\) do not fit labels of shape \(2, 4\)"
    with pytest.raises(PluginError, match=message):
        by_position.loss(outputs[:, 0], batch)


def test_label_smoothing_enters_loss_and_metric():
    outputs, batch = sample()
    smooth = task(label_smoothing=0.2)
    expected = F.cross_entropy(outputs, batch["labels"], label_smoothing=0.2)
    loss, weight = smooth.loss(outputs, batch)
    torch.testing.assert_close(loss / weight, expected)
    assert smooth.metrics(smooth.sums(outputs, batch))["loss"] == pytest.approx(float(expected), abs=1e-6)


def test_metrics_worked_out_by_hand():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    predicted = torch.tensor([0, 0, 1, 1, 0, 0])
    classification = task(4)
    sums = classification.sums(F.one_hot(predicted, 4).float() * 20, {"labels": labels})
    assert sums["confusion"].tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    metrics = classification.metrics(sums)
    assert metrics["accuracy"] == pytest.approx(3 / 6)
    # F1 of the classes: 2*2/(3+4), 2*1/(2+2), 0; the fourth occurs nowhere and is left out.
    assert metrics["macro_f1"] == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)
    assert metrics["loss"] == pytest.approx(60 / 6, abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(cut=st.integers(1, 11))
def test_sums_of_parts_add_up_to_the_sums_of_the_whole(cut):
    outputs, batch = sample()
    whole = task().sums(outputs, batch)
    parts = [
        task().sums(outputs[rows], {"labels": batch["labels"][rows]}) for rows in (slice(None, cut), slice(cut, None))
    ]
    assert torch.equal(parts[0]["confusion"] + parts[1]["confusion"], whole["confusion"])
    assert float(parts[0]["loss"] + parts[1]["loss"]) == pytest.approx(float(whole["loss"]), rel=1e-15)
    assert (whole["loss"].dtype, whole["confusion"].dtype) == (torch.float64, torch.int64)


def test_per_sample_arrays_agree_with_the_confusion_matrix():
    outputs, batch = sample()
    rows = task().per_sample(outputs, batch)
    assert (rows["predicted"].dtype, rows["label"].dtype) == (torch.int64, torch.int64)
    assert int((rows["predicted"] == rows["label"]).sum()) == int(task().sums(outputs, batch)["confusion"].trace())


def test_half_precision_outputs_are_widened():
    outputs, batch = sample()
    loss, _ = task().loss(outputs.bfloat16(), batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, task().loss(outputs.bfloat16().float(), batch)[0])


def test_no_sample_gives_no_number():
    outputs, batch = sample(0)
    assert all(math.isnan(value) for value in task().metrics(task().sums(outputs, batch)).values())


def test_refusals():
    with pytest.raises(DataError, match="task classification needs a data set with at least 2 classes, this one has 0"):
        task(0)
    with pytest.raises(ValidationError, match="label_smoothing\n  Input should be less than 1"):
        Config(label_smoothing=1.0)
    assert (PLUGIN.targets, PLUGIN.metric, PLUGIN.mode) == (("class", "positions", "pair"), "accuracy", "max")
