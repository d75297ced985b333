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
