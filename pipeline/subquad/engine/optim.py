"""Optimisers by name, and setting their rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from subquad.engine.schedule import Rates
from subquad.experiment.schema import Train
from subquad.nn import Backbone, ParameterRule, TokenMixer

PLAIN = ParameterRule()


def build_optimizer(
    train: Train,
    parameters: Iterable[nn.Parameter],
    *,
    rules: dict[nn.Parameter, ParameterRule] | None = None,
    sharded: bool = False,
) -> Optimizer:
    """The optimiser of an experiment over the parameters that train.

    Args:
        rules: parameters to be treated differently, from `parameter_rules`.
        sharded: parameters are sharded tensors, for which only the foreach form is used.
    """
    chosen = _groups([parameter for parameter in parameters if parameter.requires_grad], rules or {}, train)
    betas = (train.beta1, train.beta2)
    lr, decay, fused = train.lr, train.weight_decay, not sharded
    match train.optimizer:
        case "adamw":
            return torch.optim.AdamW(
                chosen, lr=lr, betas=betas, eps=train.eps, weight_decay=decay, foreach=sharded, fused=fused
            )
        case "adam":
            return torch.optim.Adam(
                chosen, lr=lr, betas=betas, eps=train.eps, weight_decay=decay, foreach=sharded, fused=fused
            )
        case "radam":
            return torch.optim.RAdam(chosen, lr=lr, betas=betas, eps=train.eps, weight_decay=decay, foreach=True)
        case "sgd":
            return torch.optim.SGD(
                chosen, lr=lr, momentum=train.beta1, weight_decay=decay, foreach=sharded, fused=fused
            )


def parameter_rules(model: nn.Module) -> dict[nn.Parameter, ParameterRule]:
    """What a backbone and its mixers ask of the optimiser, by parameter; of what both name, the mixer's rule holds."""
    return {
        module.get_parameter(name): rule
        for module in model.modules()  # the backbone comes first
        if isinstance(module, (Backbone, TokenMixer))
        for name, rule in module.parameter_rules().items()
    }


def _groups(
    parameters: list[nn.Parameter], rules: dict[nn.Parameter, ParameterRule], train: Train
) -> list[dict[str, Any]]:
    """One group per rule, in the order in which rules appear; a single one where nobody asks for more."""
    grouped: dict[ParameterRule, list[nn.Parameter]] = {}
    for parameter in parameters:
        grouped.setdefault(rules.get(parameter, PLAIN), []).append(parameter)
    return [
        {
            "params": members,
            "lr_scale": rule.lr_scale,
            "lr": train.lr * rule.lr_scale,
            **({} if rule.weight_decay else {"weight_decay": 0.0}),
        }
        for rule, members in grouped.items()
    ]


def set_rates(optimizer: Optimizer, rates: Rates) -> None:
    """Give every parameter group its learning rate, and the momentum where the schedule cycles it."""
    for group in optimizer.param_groups:
        group["lr"] = rates.lr * group["lr_scale"]
        if rates.momentum is None:
            continue
        if "betas" in group:
            group["betas"] = (rates.momentum, group["betas"][1])
        else:
            group["momentum"] = rates.momentum
