"""The one-cycle schedule against torch's OneCycleLR as the Long Range Arena code runs it,
momentum cycling included.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR

from subquad.engine.optim import Rates, build_optimizer, build_schedule, set_rates
from subquad.experiment.schema import Train

LR = 1e-4
PUBLISHED = {
    "listops": (5_000, 1_000),
    "text": (20_000, 8_000),
    "retrieval": (30_000, 800),
    "image": (35_000, 175),
    "pathfinder": (62_400, 312),
}
"""Steps and warm-up steps."""


def settings(steps: int, warmup: int, lr: float = LR) -> Train:
    return Train(
        epochs=None,
        steps=steps,
        warmup_steps=warmup,
        schedule="one-cycle",
        optimizer="adamw",
        lr=lr,
        eps=1e-6,
    )


def published_optimizer(parameters: Any, lr: float = LR) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)


def published_schedule(
    optimizer: torch.optim.Optimizer, steps: int, warmup: int, lr: float = LR
) -> OneCycleLR:
    """As the authors call it: `cycle_momentum`, `div_factor` and `final_div_factor` stay at
    torch's defaults.
    """
    return OneCycleLR(
        optimizer, max_lr=lr, pct_start=warmup / steps, anneal_strategy="linear", total_steps=steps
    )


def torch_rates(steps: int, warmup: int, places: list[int]) -> list[Rates]:
    """Rate and beta1 of torch's scheduler after so many steps; its formula depends on the count
    alone.
    """
    optimizer = published_optimizer([torch.nn.Parameter(torch.zeros(1))])
    scheduler = published_schedule(optimizer, steps, warmup)
    scheduler._get_lr_called_within_step = True
    found = []
    for place in places:
        scheduler.last_epoch = place
        (rate,) = scheduler.get_lr()
        found.append(Rates(float(rate), optimizer.param_groups[0]["betas"][0]))
    return found


@pytest.mark.ci
@pytest.mark.parametrize("task", PUBLISHED)
def test_every_published_schedule_equals_torch(task):
    steps, warmup = PUBLISHED[task]
    turns = [
        place
        for turn in (0, warmup, steps)
        for place in range(turn - 3, turn + 4)
        if 0 <= place < steps
    ]
    places = sorted({*range(0, steps, 97), *turns})
    schedule = build_schedule(settings(steps, warmup), steps)
    for place, expected in zip(places, torch_rates(steps, warmup, places), strict=True):
        rates = schedule(place)
        assert rates.lr == pytest.approx(expected.lr, rel=1e-9, abs=1e-18), place
        assert rates.momentum == pytest.approx(expected.momentum, rel=1e-12), place


@pytest.mark.parametrize("task", PUBLISHED)
def test_start_peak_and_end(task):
    """From lr / 25 up to lr at step warm-up - 1, down to lr / 25 / 1e4; beta1 from 0.95 to 0.85
    and back.
    """
    steps, warmup = PUBLISHED[task]
    schedule = build_schedule(settings(steps, warmup), steps)
    first, peak, last = (schedule(place) for place in (0, warmup - 1, steps - 1))
    assert (first.lr, peak.lr, last.lr) == pytest.approx((4e-6, 1e-4, 4e-10), rel=1e-9)
    assert (first.momentum, peak.momentum, last.momentum) == pytest.approx(
        (0.95, 0.85, 0.95), rel=1e-12
    )


def test_a_whole_run_gives_the_weights_of_the_published_loop():
    steps, warmup, lr = 40, 8, 1e-2
    torch.manual_seed(0)
    start, targets = torch.randn(6, dtype=torch.float64), torch.randn(steps, 6, dtype=torch.float64)
    theirs, ours = (torch.nn.Parameter(start.clone()) for _ in range(2))

    optimizer = published_optimizer([theirs], lr)
    scheduler = published_schedule(optimizer, steps, warmup, lr)
    for target in targets:
        optimizer.zero_grad()
        (theirs - target).square().sum().backward()
        optimizer.step()
        scheduler.step()

    train = settings(steps, warmup, lr)
    optimizer, schedule = (
        build_optimizer(train, torch.nn.ParameterList([ours])),
        build_schedule(train, steps),
    )
    for done, target in enumerate(targets):
        optimizer.zero_grad()
        (ours - target).square().sum().backward()
        set_rates(optimizer, schedule(done))
        optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert float((ours - start).detach().abs().min()) > 1e-3
