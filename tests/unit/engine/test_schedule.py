"""Schedules are pure functions; one-cycle equals torch's."""

import pytest
import torch

from subquad.engine.optim import Rates, build_optimizer, build_schedule, set_rates
from subquad.experiment.schema import Train


def settings(**values):
    return Train(epochs=None, steps=100, **values)


@pytest.mark.parametrize(("steps", "warmup"), [(100, 30), (200, 20), (50, 0), (1000, 175)])
def test_one_cycle_equals_torch(steps, warmup):
    schedule = build_schedule(settings(schedule="one-cycle", lr=1e-4, warmup_steps=warmup), steps)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)
    rise = warmup / steps if warmup else 0.3
    torch_one = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-4, total_steps=steps, pct_start=rise, anneal_strategy="linear"
    )
    for done in range(steps):
        rates = schedule(done)
        assert rates.lr == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-15)
        assert rates.momentum == pytest.approx(optimizer.param_groups[0]["betas"][0], rel=1e-9)
        optimizer.step()
        if done < steps - 1:
            torch_one.step()


def test_constant_with_warmup():
    schedule = build_schedule(settings(lr=1.0, warmup_steps=4), 100)
    assert [schedule(done).lr for done in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


@pytest.mark.parametrize(("name", "middle"), [("linear", 0.55), ("cosine", 0.55)])
def test_decay_reaches_the_floor(name, middle):
    schedule = build_schedule(settings(lr=1.0, schedule=name, min_lr_ratio=0.1), 100)
    assert schedule(0).lr == 1.0
    assert schedule(50).lr == pytest.approx(middle)
    assert schedule(100).lr == pytest.approx(0.1)
    assert schedule(500).lr == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["adamw", "adam", "radam", "sgd"])
def test_rates_reach_every_group(name):
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = build_optimizer(settings(optimizer=name), torch.nn.ParameterList([parameter]))
    set_rates(optimizer, Rates(0.125, 0.5))
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.125
    assert (group["betas"][0] if "betas" in group else group["momentum"]) == 0.5
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert torch.isfinite(parameter).all()
    assert (parameter < 1).all()


def test_frozen_parameters_are_left_out():
    free, frozen = (
        torch.nn.Parameter(torch.ones(1)),
        torch.nn.Parameter(torch.ones(1), requires_grad=False),
    )
    assert build_optimizer(settings(), torch.nn.ParameterList([free, frozen])).param_groups[0][
        "params"
    ] == [free]
