"""The control experiments in small: mixers that look up by content solve them, the identity
control stays at chance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from splits import dataset_of
from writing import maker

from subquad.data import Dataset
from subquad.nn import BackboneContext
from subquad_plugins.classification import Config as TaskConfig
from subquad_plugins.classification.task import Classification
from subquad_plugins.encoder import Config as EncoderConfig
from subquad_plugins.encoder.backbone import Encoder


def tensors(split, indices: np.ndarray) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(values)
        for name, values in split.fetch(indices, epoch=0, seed=0).items()
    }


def recall() -> Dataset:
    return dataset_of("recall", Path("unused"), num_pairs=8, num_keys=8, num_values=4)


def mqar() -> Dataset:
    """Two pairs, both asked for: chance is 25 %, knowing the values but not their keys gives 50
    %.
    """
    pairs = {"length": 7, "num_pairs": 2, "num_keys": 4, "num_values": 4}
    return dataset_of("mqar", Path("unused"), train_size=8192, **pairs)


def trained_accuracy(name: str, data: Dataset, epochs: int, **params: Any) -> float:
    """Validation accuracy after a plain training loop."""
    train, validation = data.split("train"), data.split("validation")
    task = Classification(TaskConfig(), data.describe())
    torch.manual_seed(0)
    config = EncoderConfig(
        **{"dim": 64, "num_heads": 2, "ffn_dim": 128, "head": "last", "dropout": 0.0, **params}
    )
    context = BackboneContext(
        spec=data.describe(), num_outputs=task.num_outputs, make_mixer=maker(name)
    )
    model = Encoder(config, context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    order = np.random.default_rng(0)
    for _ in range(epochs):
        for rows in order.permutation(len(train)).reshape(-1, 64):
            batch = tensors(train, rows)
            output = model(batch)
            loss, weight = task.loss(output.outputs, batch)
            loss = loss / weight + (0.0 if output.penalty is None else output.penalty.mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    batch = tensors(validation, np.arange(len(validation)))
    with torch.no_grad():
        return task.metrics(task.sums(model.eval()(batch).outputs, batch))["accuracy"]


@pytest.mark.ci
@pytest.mark.parametrize("name", ["agf", "softmax"])
def test_a_mixer_that_carries_content_solves_recall(name):
    assert trained_accuracy(name, recall(), epochs=3) > 0.9


@pytest.mark.ci
def test_the_identity_control_stays_at_chance():
    assert abs(trained_accuracy("identity", recall(), epochs=3) - 0.25) < 0.08


@pytest.mark.ci
@pytest.mark.parametrize("name", ["agf", "softmax"])
def test_a_mixer_that_looks_up_by_content_solves_mqar(name):
    assert trained_accuracy(name, mqar(), epochs=2, head="each", embedding_init=0.1) > 0.95


@pytest.mark.ci
def test_the_identity_control_stays_at_chance_on_mqar():
    assert (
        abs(trained_accuracy("identity", mqar(), epochs=3, head="each", embedding_init=0.1) - 0.25)
        < 0.08
    )
