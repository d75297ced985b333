"""Several labels a sample: loss, sums that add up, and scores that are scikit-learn's."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from subquad.data import DataSpec
from subquad.errors import DataError, PluginError
from subquad_plugins.multilabel import PLUGIN, Config
from subquad_plugins.multilabel.task import Multilabel, average_precision


def task(classes: int = 4, **params: float) -> Multilabel:
    spec = DataSpec.series(4, 1, target="multilabel", num_classes=classes)
    return Multilabel(Config.model_validate(params), spec)


def sample(count: int = 50, seed: int = 0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(count, 4, generator=generator).mul(4).round() / 4  # equal scores occur
    return outputs, {"labels": (torch.rand(count, 4, generator=generator) < 0.3).float()}


def final(outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> dict[str, float]:
    return task().rescore(task().per_sample(outputs, batch))


def test_loss_is_the_sum_over_known_labels():
    outputs, batch = sample()
    loss, weight = task(positive_weight=3.0).loss(outputs, batch)
    wanted = F.binary_cross_entropy_with_logits(
        outputs, batch["labels"], pos_weight=torch.tensor(3.0)
    )
    torch.testing.assert_close(loss / weight, wanted)
    assert float(weight) == task().weight(batch) == 200


def test_scores_are_those_of_scikit_learn():
    outputs, batch = sample()
    labels, named = batch["labels"].numpy(), outputs.numpy() > 0
    found = final(outputs, batch)
    assert found["mean_average_precision"] == pytest.approx(
        average_precision_score(labels, outputs.numpy()), rel=1e-12
    )
    assert found["macro_f1"] == pytest.approx(f1_score(labels, named, average="macro"), rel=1e-12)
    assert found["micro_f1"] == pytest.approx(f1_score(labels, named, average="micro"), rel=1e-12)
    assert found["exact_match"] == pytest.approx(accuracy_score(labels, named), rel=1e-12)
    during = task().metrics(task().sums(outputs, batch))
    assert {
        name: found[name] for name in ("macro_f1", "micro_f1", "exact_match")
    }.items() <= during.items()


@settings(max_examples=50)
@given(scores=st.lists(st.integers(0, 5), min_size=1, max_size=30), seed=st.integers(0, 1000))
def test_average_precision_with_ties(scores: list[int], seed: int):
    labels = np.random.default_rng(seed).integers(0, 2, len(scores))
    labels[0] = 1
    found = average_precision(torch.tensor(scores).float(), torch.from_numpy(labels).float())
    assert found == pytest.approx(average_precision_score(labels, scores), rel=1e-12)


def test_unknown_labels_take_no_part():
    outputs, batch = sample()
    outputs.requires_grad_()
    labels = batch["labels"].clone()
    labels[::2, 1], labels[3] = torch.nan, torch.nan
    loss, weight = task().loss(outputs, {"labels": labels})
    loss.backward()
    assert float(weight) == task().weight({"labels": labels}) == 200 - 25 - 4
    assert outputs.grad is not None
    assert not outputs.grad[labels.isnan()].any()
    found, known = final(outputs.detach(), {"labels": labels}), ~labels[:, 1].isnan()
    alone = final(
        outputs.detach()[known][:, 1:2].repeat(1, 4), {"labels": labels[known][:, 1:2].repeat(1, 4)}
    )
    every = [average_precision(outputs.detach()[:, c], labels[:, c]) for c in range(4)]
    assert alone["mean_average_precision"] == pytest.approx(every[1])
    assert found["mean_average_precision"] == pytest.approx(np.mean(every))
    rows = [row for row in range(50) if row != 3]
    hits = [
        (((outputs[row] > 0) == (labels[row] == 1)) | labels[row].isnan()).all() for row in rows
    ]
    assert found["exact_match"] == pytest.approx(np.mean(hits))


def test_classes_that_do_not_occur_are_left_out():
    outputs, batch = sample()
    outputs[:, 0], batch["labels"][:, 0] = -1.0, 0.0
    found = final(outputs, batch)
    labels, scores = batch["labels"][:, 1:].numpy(), outputs[:, 1:].numpy()
    assert found["macro_f1"] == pytest.approx(f1_score(labels, scores > 0, average="macro"))
    assert found["mean_average_precision"] == pytest.approx(average_precision_score(labels, scores))


def test_nothing_labelled_is_no_number():
    found = task().metrics(
        task().sums(torch.zeros(2, 4), {"labels": torch.full((2, 4), torch.nan)})
    )
    assert all(math.isnan(found[name]) for name in ("loss", "exact_match"))
    assert found["micro_f1"] == found["macro_f1"] == 0


@pytest.mark.parametrize("cuts", [(10,), (1, 2, 3), (7, 40)])
def test_sums_add_up_over_batches(cuts: tuple[int, ...]):
    outputs, batch = sample()
    parts = [slice(*ends) for ends in pairwise((0, *cuts, 50))]
    found = [task().sums(outputs[part], {"labels": batch["labels"][part]}) for part in parts]
    added = {name: torch.stack([sums[name] for sums in found]).sum(0) for name in found[0]}
    assert task().metrics(added) == pytest.approx(
        task().metrics(task().sums(outputs, batch)), rel=1e-6
    )


def test_the_best_is_chosen_by_the_loss_and_tables_compare_precision():
    assert (PLUGIN.metric, PLUGIN.mode) == ("loss", "min")
    assert list(PLUGIN.tested) == ["mean_average_precision", "macro_f1", "micro_f1", "exact_match"]


def test_what_is_refused():
    with pytest.raises(
        DataError, match="task multilabel needs a data set of several labels, this one labels class"
    ):
        Multilabel(Config(), DataSpec.series(4, 1, num_classes=2))
    with pytest.raises(
        PluginError, match=r"outputs of shape \(50, 3\) do not fit labels of shape \(50, 4\)"
    ):
        task().loss(torch.zeros(50, 3), sample()[1])
    with pytest.raises(ValueError, match="the labels not 0, 1 or unknown"):
        task().rescore({"logit": torch.zeros(2, 4), "label": torch.full((2, 4), 2.0)})
