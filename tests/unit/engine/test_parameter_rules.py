"""Parameters that a method's paper trains differently."""

from __future__ import annotations

import torch
from torch import nn

from subquad.engine.optim import Rates, _parameter_rules, build_optimizer, set_rates
from subquad.experiment.schema import Train
from subquad.nn import AttentionCore, AttentionMixer, ParameterRule, TokenMixer
from subquad.plugin import Site

SLOW = ParameterRule(lr_scale=0.1, weight_decay=False)


class Paced(TokenMixer):
    def __init__(self):
        super().__init__()
        self.pole, self.weight = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x, *, keep=None, carry=None):
        return x * (self.pole * self.weight).sum()

    def parameter_rules(self):
        return {"pole": SLOW}


class PacedCore(AttentionCore):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, q, k, v, *, query_keep=None, key_keep=None):
        return v * self.scale

    def parameter_rules(self):
        return {"scale": ParameterRule(weight_decay=False)}


def train(**more) -> Train:
    return Train.model_validate(
        {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.1, "beta1": 0.0, **more}
    )


def optimizer_of(model: nn.Module, **more):
    return build_optimizer(train(**more), model)


def test_rules_are_found_wherever_a_mixer_stands():
    model = nn.Sequential(
        Paced(), nn.ModuleDict({"deep": AttentionMixer(PacedCore(), Site(dim=4))})
    )
    named = {parameter: name for name, parameter in model.named_parameters()}
    found = {named[parameter]: rule for parameter, rule in _parameter_rules(model).items()}
    assert found == {"0.pole": SLOW, "1.deep.core.scale": ParameterRule(weight_decay=False)}


def test_a_rule_scales_the_rate_and_leaves_out_decay():
    model = Paced()
    optimizer = optimizer_of(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones(3)
    optimizer.step()
    assert torch.allclose(model.weight, torch.full((3,), 1 - 0.5 * (1 + 0.1)))
    assert torch.allclose(model.pole, torch.full((3,), 1 - 0.05 * 1))


def test_the_schedule_keeps_the_ratio():
    optimizer = optimizer_of(Paced(), optimizer="adamw")
    set_rates(optimizer, Rates(lr=0.2, momentum=None))
    assert sorted(group["lr"] for group in optimizer.param_groups) == [0.2 * 0.1, 0.2]


def test_without_rules_there_is_one_group():
    assert len(optimizer_of(nn.Linear(2, 2)).param_groups) == 1
