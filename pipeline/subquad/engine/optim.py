"""Optimisers by name, their rates over a run, the average of weights, and the fp16 loss scaler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.experiment.schema import Train
from subquad.nn import Backbone, ParameterRule, TokenMixer

_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "radam": torch.optim.RAdam,
    "sgd": torch.optim.SGD,
}
# torch.optim.lr_scheduler.OneCycleLR's defaults, which the LRA code base runs with.
_CYCLE_START, _CYCLE_END = 25.0, 1e4
_CYCLE_MOMENTUM = (0.85, 0.95)


def build_optimizer(train: Train, model: nn.Module, *, sharded: bool = False) -> Optimizer:
    """The optimiser of an experiment over a model's parameters that train, by the rules of its
    mixers and backbone.

    Args:
        sharded: parameters are sharded tensors, for which only the foreach form is used, as for
            complex ones.
    """
    fused = train.optimizer != "radam" and not sharded
    for weight in model.parameters():
        if weight.is_complex() and weight.requires_grad:
            fused = False
            weight.register_hook(torch.resolve_conj)  # optimisers refuse to do it themselves
    settings: dict[str, Any] = {
        "params": _groups(model, train),
        "lr": train.lr,
        "weight_decay": train.weight_decay,
        "fused" if fused else "foreach": True,
    }
    if train.optimizer == "sgd":
        settings["momentum"] = train.beta1
    else:
        settings["betas"] = (train.beta1, train.beta2)
        settings["eps"] = train.eps
    return _OPTIMIZERS[train.optimizer](**settings)


def _parameter_rules(model: nn.Module) -> dict[nn.Parameter, ParameterRule]:
    """What a backbone and its mixers ask of the optimiser, by parameter; of what both name, the
    mixer's rule holds.
    """
    rules = {}
    for module in model.modules():  # the backbone comes first
        if isinstance(module, (Backbone, TokenMixer)):
            for name, rule in module.parameter_rules().items():
                rules[module.get_parameter(name)] = rule
    return rules


def _groups(model: nn.Module, train: Train) -> list[dict[str, Any]]:
    """One group per rule, in the order in which rules appear; a single one where nobody asks for
    more.
    """
    rules = _parameter_rules(model)
    groups = dict[ParameterRule, dict[str, Any]]()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        rule = rules.get(parameter, ParameterRule())
        if rule not in groups:
            groups[rule] = {"params": [], "lr_scale": rule.lr_scale, "lr": train.lr * rule.lr_scale}
            if not rule.weight_decay:
                groups[rule]["weight_decay"] = 0.0
        # torch keeps the names as `param_names`
        groups[rule]["params"].append((name, parameter))
    return list(groups.values())


class Rates(NamedTuple):
    """What the next update uses.

    Attributes:
        lr: learning rate.
        momentum: beta1 (or SGD momentum) where the schedule cycles it, else None.
    """

    lr: float
    momentum: float | None = None


def set_rates(optimizer: Optimizer, rates: Rates) -> None:
    """Give every parameter group its learning rate, and the momentum where the schedule cycles
    it.
    """
    for group in optimizer.param_groups:
        group["lr"] = rates.lr * group["lr_scale"]
        if rates.momentum is None:
            continue
        if "betas" in group:
            _, beta2 = group["betas"]
            group["betas"] = (rates.momentum, beta2)
        else:
            group["momentum"] = rates.momentum


def begin_momentum(optimizer: Optimizer) -> None:
    """Let SGD's momentum start at zero, which gives torch's first update.

    Left to itself torch's fused form keeps whatever was in memory where the first update is
    skipped on the device, and goes on from that.
    """
    for group in optimizer.param_groups:
        if not group.get("momentum"):
            continue
        for parameter in group["params"]:
            if parameter.grad is not None:
                zeros = torch.zeros_like(parameter)
                optimizer.state[parameter].setdefault("momentum_buffer", zeros)


Schedule = Callable[[int], Rates]
"""A pure function of the number of steps already done, so that a checkpoint needs no scheduler
state.
"""


def build_schedule(train: Train, total_steps: int) -> Schedule:
    """The schedule of an experiment over `total_steps` steps."""
    return partial(_one_cycle if train.schedule == "one-cycle" else _warmed_up, train, total_steps)


def _warmed_up(train: Train, total_steps: int, done: int) -> Rates:
    steps = train.warmup_steps
    warmup = min(1.0, (done + 1) / (steps + 1))
    progress = min(1.0, max(0.0, (done - steps) / max(1, total_steps - steps)))
    match train.schedule:
        case "constant":
            return Rates(train.lr * warmup)
        case "linear":
            left = 1.0 - progress
        case _:
            left = 0.5 * (1.0 + math.cos(math.pi * progress))
    lowest = train.min_lr_ratio
    decay = lowest + (1.0 - lowest) * left
    return Rates(train.lr * warmup * decay)


def _one_cycle(train: Train, total_steps: int, done: int) -> Rates:
    """Linear one-cycle with momentum cycling, equal to OneCycleLR(anneal_strategy="linear").

    Without warm-up steps the rise takes 30 % of the run, OneCycleLR's default.
    """
    rise = float(train.warmup_steps or 0.3 * total_steps) - 1.0
    last = float(total_steps - 1)
    low, high = _CYCLE_MOMENTUM
    top = train.lr
    start = top / _CYCLE_START
    end = start / _CYCLE_END
    if done <= rise or last <= rise:
        part = min(1.0, done / max(rise, 1e-9)) if rise > 0 else 1.0
        lr = start + part * (top - start)
        momentum = high + part * (low - high)
    else:
        part = min(1.0, (done - rise) / (last - rise))
        lr = top + part * (end - top)
        momentum = low + part * (high - low)
    return Rates(lr, momentum)


class Average:
    """The exponential moving average of a model's parameters that train, which is what is evaluated
    and kept.

    Args:
        model: whose parameters; they are where training computes.
        decay: of the average at each update, in [0, 1).
    """

    def __init__(self, model: nn.Module, decay: float):
        self.rate = 1.0 - decay
        self.parameters = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        self.averages = {name: weight.detach().clone() for name, weight in self.parameters.items()}

    @torch.no_grad()
    def update(self, made: Tensor) -> None:
        """Move towards the parameters, where the update was made, a () tensor."""
        rate = self.rate * made.double()
        averages = list(self.averages.values())
        parameters: list[Tensor] = list(self.parameters.values())
        rates = [rate.to(average.dtype) for average in averages]
        torch._foreach_lerp_(averages, parameters, rates)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def restart(self) -> None:
        """Take the parameters as they are for their average."""
        for name, average in self.averages.items():
            average.copy_(self.parameters[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages meanwhile."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, average in self.averages.items():
            parameter = self.parameters[name]
            before = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(before)


@dataclass
class LossScaler:
    """Dynamic loss scaling for fp16; scale 1 and switched off otherwise.

    Unlike torch's GradScaler it is told whether a step was finite, so that all ranks decide alike,
    and its state is two numbers in the checkpoint's JSON.

    Attributes:
        enabled: False keeps the scale at 1.
        scale: factor on the loss.
        good_steps: finite steps since the scale last changed.
    """

    enabled: bool
    scale: float = 1.0
    good_steps: int = 0

    GROWTH, BACKOFF, INTERVAL = 2.0, 0.5, 2000

    @staticmethod
    def of(train: Train) -> LossScaler:
        if train.precision == "fp16":
            return LossScaler(enabled=True, scale=2.0**16)
        return LossScaler(enabled=False)

    def absorbs(self, finite: bool, loss_finite: bool) -> bool:
        """Take note of a step; True where non-finite gradients are answered by a smaller scale and
        so are no failure.

        A non-finite loss is a failure at any scale.
        """
        if not self.enabled or not loss_finite:
            return False
        if finite:
            self.good_steps += 1
            if self.good_steps == self.INTERVAL:
                self.scale = self.scale * self.GROWTH
                self.good_steps = 0
            return False
        backed_off = self.scale > 1.0
        self.scale = max(1.0, self.scale * self.BACKOFF)
        self.good_steps = 0
        return backed_off
