"""Classification: loss, sums that add up exactly, metrics against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import top_k_accuracy_score
from torch import Tensor

from subquad.data import DataSpec
from subquad.errors import DataError, PluginError
from subquad_plugins.classification import PLUGIN, Config
from subquad_plugins.classification.task import Classification

COUNTS = ("right", "named", "true")


def task(classes: int = 3, **params) -> Classification:
    return Classification(
        Config(**params), DataSpec.series(max_len=4, channels=1, num_classes=classes)
    )


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
    return (
        Classification(Config(), spec),
        outputs,
        {"labels": torch.tensor([[0, -1, 2, 1], [-1, 2, 2, -1]])},
    )


def test_labelled_positions_are_cases_like_samples():
    by_position, outputs, batch = positions()
    labelled = batch["labels"] >= 0
    cases = {"labels": batch["labels"][labelled]}
    loss, weight = by_position.loss(outputs, batch)
    torch.testing.assert_close(loss, task().loss(outputs[labelled], cases)[0])
    assert float(weight) == by_position.weight(batch) == 5.0
    sums, expected = by_position.sums(outputs, batch), task().sums(outputs[labelled], cases)
    assert all(torch.equal(sums[name], expected[name]) for name in COUNTS)
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
    assert (
        float(by_position.loss(outputs.detach(), nothing)[0]) == by_position.weight(nothing) == 0.0
    )


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
    assert smooth.metrics(smooth.sums(outputs, batch))["loss"] == pytest.approx(
        float(expected), abs=1e-6
    )


def test_mixed_samples_have_a_share_of_both_labels():
    outputs, batch = sample(4)
    other, share = batch["labels"].roll(1), torch.tensor([0.0, 0.2, 0.5, 1.0])
    mixed = {**batch, "other_labels": other, "other_share": share}
    own, others = (
        F.cross_entropy(outputs, labels, reduction="none") for labels in (batch["labels"], other)
    )
    torch.testing.assert_close(
        task().loss(outputs, mixed)[0], ((1 - share) * own + share * others).sum()
    )


def test_metrics_worked_out_by_hand():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    predicted = torch.tensor([0, 0, 1, 1, 0, 0])
    classification = task(4)
    sums = classification.sums(F.one_hot(predicted, 4).float() * 20, {"labels": labels})
    assert {name: sums[name].tolist() for name in COUNTS} == {
        "right": [2, 1, 0, 0], "named": [4, 2, 0, 0], "true": [3, 2, 1, 0],
    }  # fmt: skip
    metrics = classification.metrics(sums)
    assert metrics["accuracy"] == pytest.approx(3 / 6)
    # F1 of the classes: 2*2/(3+4), 2*1/(2+2), 0; the fourth occurs nowhere and is left out.
    assert metrics["macro_f1"] == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)
    assert metrics["loss"] == pytest.approx(60 / 6, abs=1e-6)


@settings(max_examples=20)
@given(cut=st.integers(1, 11))
def test_sums_of_parts_add_up_to_the_sums_of_the_whole(cut):
    outputs, batch = sample()
    whole = task().sums(outputs, batch)
    parts = [
        task().sums(outputs[rows], {"labels": batch["labels"][rows]})
        for rows in (slice(None, cut), slice(cut, None))
    ]
    assert all(torch.equal(parts[0][name] + parts[1][name], whole[name]) for name in COUNTS)
    assert float(parts[0]["loss"] + parts[1]["loss"]) == pytest.approx(
        float(whole["loss"]), rel=1e-15
    )
    assert (whole["loss"].dtype, whole["right"].dtype) == (torch.float64, torch.int64)


def from_confusion(labels: Tensor, predicted: Tensor, classes: int) -> tuple[float, float]:
    """Accuracy and macro F1 as a confusion matrix gives them."""
    pairs = torch.bincount(labels * classes + predicted, minlength=classes**2)
    confusion = pairs.view(classes, classes).double()
    either = confusion.sum(1) + confusion.sum(0)
    f1 = 2 * confusion.diagonal() / either
    return float(confusion.trace()) / float(confusion.sum()), float(f1[either > 0].mean())


@settings(max_examples=30)
@given(classes=st.integers(2, 60), count=st.integers(1, 200), seed=st.integers(0, 1000))
def test_scores_are_those_of_a_confusion_matrix_to_the_bit(classes: int, count: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    outputs = F.one_hot(labels, classes) + torch.randn(count, classes, generator=generator)
    found = task(classes).metrics(task(classes).sums(outputs, {"labels": labels}))
    expected = from_confusion(labels, outputs.argmax(1), classes)
    assert (found["accuracy"], found["macro_f1"]) == expected
    again = task(classes).rescore(task(classes).per_sample(outputs, {"labels": labels}))
    assert again == {name: found[name] for name in again}


def test_sums_grow_with_the_number_of_classes_not_with_its_square():
    many = 21_841
    outputs = torch.zeros(2, many)
    sums = task(many).sums(outputs, {"labels": torch.tensor([0, many - 1])})
    assert sum(value.numel() for value in sums.values()) <= 3 * many + 2


def test_top5_is_told_of_more_than_20_classes():
    outputs, batch = sample(200, 21)
    found = task(21).metrics(task(21).sums(outputs, batch))
    expected = top_k_accuracy_score(batch["labels"], outputs, k=5, labels=range(21))
    assert found["top5_accuracy"] == expected
    kept = task(21).per_sample(outputs, batch)
    assert (len(kept["top5_accuracy"]), kept["top5_accuracy"].dtype) == (200, torch.bool)
    outputs, batch = sample(200, 20)
    assert "top5_accuracy" not in task(20).metrics(task(20).sums(outputs, batch))
    assert "top5_accuracy" not in task(20).per_sample(outputs, batch)


def test_outputs_that_are_all_the_same_are_no_top5():
    labels = torch.arange(30)
    for same, expected in ((0.0, 5 / 30), (math.nan, 1 / 30)):
        outputs = torch.full((30, 30), same)
        found = task(30).metrics(task(30).sums(outputs, {"labels": labels}))
        assert (found["accuracy"], found["top5_accuracy"]) == (1 / 30, expected)


def test_top5_of_positions_leaves_out_those_without_a_label():
    spec = DataSpec.tokens(max_len=3, vocab_size=9, num_classes=30, target="positions")
    by_position = Classification(Config(), spec)
    labels = torch.tensor([[0, -1, 4], [5, -1, -1]])
    outputs = -torch.arange(30.0).expand(2, 3, 30)
    sums = by_position.sums(outputs, {"labels": labels})
    assert by_position.metrics(sums)["top5_accuracy"] == 2 / 3
    kept = by_position.per_sample(outputs, {"labels": labels})
    assert kept["top5_accuracy"].tolist() == [[True, False, True], [False, False, False]]


def test_kept_answers_that_contradict_each_other_are_refused():
    kept = task(30).per_sample(*sample(10, 30))
    kept["top5_accuracy"] = torch.zeros(10, dtype=torch.bool)
    kept["predicted"] = kept["label"]
    with pytest.raises(ValueError, match="the likeliest class is not among the five likeliest"):
        task(30).rescore(kept)


def test_half_precision_outputs_are_widened():
    outputs, batch = sample()
    loss, _ = task().loss(outputs.bfloat16(), batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, task().loss(outputs.bfloat16().float(), batch)[0])


def test_no_sample_gives_no_number():
    outputs, batch = sample(0)
    assert all(math.isnan(value) for value in task().metrics(task().sums(outputs, batch)).values())


def test_refusals():
    with pytest.raises(
        DataError,
        match="task classification needs a data set with at least 2 classes, this one has 0",
    ):
        task(0)
    assert (PLUGIN.targets, PLUGIN.metric, PLUGIN.mode) == (
        ("class", "positions", "pair"),
        "accuracy",
        "max",
    )
