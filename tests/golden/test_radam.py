"""torch's RAdam against the authors' own: 200 steps of the same small problem."""

from __future__ import annotations

import pytest
import torch
from golden_files import golden_files

from subquad.engine.optim import build_optimizer
from subquad.experiment.schema import Train


@pytest.mark.parametrize("name", golden_files("radam"))
def test_radam_follows_the_authors_trajectory(golden, assert_close, name):
    arrays = golden(name)
    point = torch.nn.Parameter(arrays["p0"].clone())
    optimizer = build_optimizer(Train(optimizer="radam", lr=1e-2), torch.nn.ParameterList([point]))
    steps = []
    for _ in range(len(arrays["traj"])):
        optimizer.zero_grad()
        (((arrays["A"] @ point - 1) ** 2).sum() + 0.1 * torch.sin(3 * point).sum()).backward()
        optimizer.step()
        steps.append(point.detach().clone())
    assert_close(torch.stack(steps), arrays["traj"], 2e-6)
