"""Optimisers by name, and setting their rates."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from subquad.engine.schedule import Rates
from subquad.experiment.schema import Train


def build_optimizer(train: Train, parameters: Iterable[nn.Parameter], *, sharded: bool = False) -> Optimizer:
    """The optimiser of an experiment over the parameters that train.

    Args:
        sharded: parameters are sharded tensors, for which only the foreach form is used.
    """
    chosen = [parameter for parameter in parameters if parameter.requires_grad]
    betas = (train.beta1, train.beta2)
    common = {"lr": train.lr, "weight_decay": train.weight_decay}
    kernel = {"foreach": True} if sharded else {"fused": True}
    match train.optimizer:
        case "adamw":
            return torch.optim.AdamW(chosen, betas=betas, eps=train.eps, **common, **kernel)
        case "adam":
            return torch.optim.Adam(chosen, betas=betas, eps=train.eps, **common, **kernel)
        case "radam":
            return torch.optim.RAdam(chosen, betas=betas, eps=train.eps, foreach=True, **common)
        case "sgd":
            return torch.optim.SGD(chosen, momentum=train.beta1, **common, **kernel)


def set_rates(optimizer: Optimizer, rates: Rates) -> None:
    """Give every parameter group the learning rate, and the momentum where the schedule cycles it."""
    for group in optimizer.param_groups:
        group["lr"] = rates.lr
        if rates.momentum is None:
            continue
        if "betas" in group:
            group["betas"] = (rates.momentum, group["betas"][1])
        else:
            group["momentum"] = rates.momentum
