"""Pair classification: classification's loss and metrics, behind a backbone that reads two sequences."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.nn.functional as F

from subquad.data import DataSpec
from subquad.errors import DataError
from subquad_plugins import classification, pair_classification
from subquad_plugins.pair_classification import PLUGIN


def build(classes: int = 2):
    module, _, name = PLUGIN.build.partition(":")
    spec = DataSpec.tokens(max_len=4, vocab_size=9, num_classes=classes)
    return getattr(importlib.import_module(module), name)(PLUGIN.config(), spec)


def test_it_wants_a_dual_encoder_and_selects_by_accuracy():
    assert (PLUGIN.targets, PLUGIN.metric, PLUGIN.mode) == (("pair",), "accuracy", "max")
    assert pair_classification.Config is classification.Config


def test_loss_and_metrics_are_those_of_classification():
    task = build()
    outputs = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    keep = torch.ones(3, 4, dtype=torch.bool)
    batch = {"inputs_b": keep.long(), "keep_b": keep, "labels": torch.tensor([0, 1, 1])}
    loss, weight = task.loss(outputs, batch)
    torch.testing.assert_close(loss / weight, F.cross_entropy(outputs, batch["labels"]))
    assert task.num_outputs == 2
    assert task.metrics(task.sums(outputs, batch))["accuracy"] == pytest.approx(2 / 3)


def test_a_data_set_without_classes_is_refused():
    with pytest.raises(
        DataError, match=r"^task pair-classification needs a data set with at least 2 classes, this one has 1"
    ):
        build(1)
