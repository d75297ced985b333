"""What a backbone and a task do unless they say otherwise: foreign weights, rules, evaluation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

import subquad
from subquad.data import DataSpec
from subquad.engine.optim import _parameter_rules
from subquad.nn import (
    Backbone,
    Batch,
    MixerOutput,
    ModelOutput,
    ParameterRule,
    Task,
    TokenMixer,
    gather_losses,
)
from subquad.plugin import Config


class Scale(TokenMixer):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x, *, keep=None, carry=None):
        return x * self.scale

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        return {"scale": ParameterRule(lr_scale=0.5)}


class Net(Backbone):
    """Its outputs are a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Scale()])
        self.head = nn.Linear(3, 2)

    def forward(self, batch: Batch) -> ModelOutput:
        x = self.blocks[0](batch["inputs"])
        return ModelOutput({"features": x, "logits": [self.head(x)]})

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        plain = ParameterRule(weight_decay=False)
        return {"head.bias": plain, "blocks.0.scale": plain}


class Sum(Task):
    num_outputs = 2

    def loss(self, outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        return outputs["logits"][0].sum(), torch.tensor(1.0)

    def sums(self, outputs, batch: Batch) -> dict[str, Tensor]:
        return {"total": outputs["logits"][0].double().sum()}

    def per_sample(self, outputs, batch: Batch) -> dict[str, Tensor]:
        return {"first": outputs["features"][:, 0]}

    def metrics(self, sums) -> dict[str, float]:
        return {"total": float(sums["total"])}


def test_a_backbone_gives_rules_and_its_mixers_have_the_last_word():
    net = Net()
    rules = _parameter_rules(net)
    assert rules[net.head.bias] == ParameterRule(weight_decay=False)
    assert rules[net.blocks[0].scale] == ParameterRule(lr_scale=0.5)
    assert net.head.weight not in rules


def test_evaluation_is_one_forward_pass_over_any_tree():
    net, task = Net(), Sum(Config(), DataSpec.series(max_len=1, channels=3))
    batch = {"inputs": torch.randn(4, 3)}
    sums, rows = task.evaluate(net, batch, final=True)
    outputs = net(batch).outputs
    assert torch.equal(sums["total"], outputs["logits"][0].double().sum())
    assert torch.equal(rows["first"], outputs["features"][:, 0])
    assert torch.equal(task.decode(net, batch)["features"], outputs["features"])


def test_foreign_weights_are_copied_by_name_and_shape():
    net = Net()
    given = {
        "head.weight": torch.full((2, 3), 7.0),
        "head.bias": torch.zeros(5),
        "other": torch.zeros(1),
    }
    found = net.import_weights(given)
    assert (found.used, found.missing, found.unused) == (
        ("head.weight",),
        ("blocks.0.scale", "head.bias"),
        ("head.bias", "other"),
    )
    assert torch.equal(net.head.weight, given["head.weight"])


@pytest.mark.parametrize("mixer", ["cur", "softmax"])
def test_weights_of_a_softmax_model_go_into_any_core(mixer):
    class One(Backbone):
        def __init__(self, name: str):
            super().__init__()
            self.blocks = nn.ModuleList([subquad.mixer(name, dim=8, num_heads=2)])

        def forward(self, batch: Batch) -> ModelOutput:
            return ModelOutput(self.blocks[0](batch["inputs"]))

    source, model = One("softmax"), One(mixer)
    found = model.import_weights(source.state_dict())
    assert set(found.used) == set(source.state_dict())
    assert not found.unused
    assert all(
        torch.equal(model.state_dict()[name], tensor)
        for name, tensor in source.state_dict().items()
    )


def test_an_extra_loss_of_the_batch_counts_for_each_sample():
    mixer = Scale()
    mixer.loss_weights = {"own": 1.0, "batch": 0.5}
    losses = {"own": torch.tensor([1.0, 2.0, 3.0]), "batch": torch.tensor(4.0)}
    result = MixerOutput(torch.zeros(3, 5, 2), losses)
    found, penalty = gather_losses([mixer, mixer], [result, result])
    assert found["batch"].tolist() == [4.0, 4.0, 4.0]
    assert found["own"].tolist() == [1.0, 2.0, 3.0]
    assert penalty is not None
    assert penalty.tolist() == [3.0, 4.0, 5.0]
