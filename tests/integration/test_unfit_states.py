"""A state from which nothing good could go on is never written: the run stops, earlier
checkpoints stay.
"""

from __future__ import annotations

import pytest
import states
from result_file import read_result
from small_run import run_here

from subquad.engine import state

SETTINGS = ("train.epochs=1", "train.checkpoint_every_steps=5", "train.eval_every_epochs=null")
SPOILT = """
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Spoilt(TokenMixer):
    Config = MixerConfig
    facts = Facts(stateful=True)

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)
        self.spoilt = torch.nn.Parameter(torch.zeros(3))
        self.register_buffer("limit", torch.tensor(float("inf")))
        self.calls = 0

    def forward(self, x, *, keep=None, carry=None):
        self.calls += self.training
        if self.training and self.calls == STEP:
            self.spoilt.data[1] = float("nan")
        return self.value(x).clamp(max=self.limit).cumsum(1)
"""


def spoilt(path, step):
    """A mixer, one of whose weights is no number from a step on, which no loss shows."""
    path.write_text(SPOILT.replace("STEP", str(step)))
    return f"mixer={path}:Spoilt"


@pytest.mark.parametrize("more", [(), ("train.ema_decay=0.9",)])
def test_a_weight_that_is_no_number_is_never_saved(ticket, tmp_path, more):
    run = ticket(spoilt(tmp_path / "spoilt.py", 8), *SETTINGS, *more)
    assert run_here(run) == "failed"
    assert states.steps(run.folder) == [5]
    assert read_result(run.folder)["reason"] == (
        "step 10: weights are not finite: blocks.0.mixer.spoilt; no checkpoint was written, "
        "earlier ones are intact: lower train.lr, or set train.clip_norm"
    )


def test_a_buffer_may_be_infinite(ticket, tmp_path):
    run = ticket(spoilt(tmp_path / "spoilt.py", 10**6), *SETTINGS)
    assert run_here(run) == "finished"
    assert states.state(run.folder, 13)["model:blocks.0.mixer.limit"].isinf()


def test_a_first_update_that_overflows_leaves_no_checkpoint(ticket):
    run = ticket("train.lr=1e39", "train.checkpoint_every_steps=1")
    assert run_here(run) == "failed"
    assert states.steps(run.folder) == []
    assert "step 1: weights are not finite: " in read_result(run.folder)["reason"]


@pytest.mark.parametrize("lost", ["head.weight/exp_avg", "head.weight/", ""])
def test_state_that_the_optimiser_has_lost_is_told(ticket, monkeypatch, lost):
    taken = state.optimizer_tensors

    def losing(optimizer):
        found = taken(optimizer)
        return {name: tensor for name, tensor in found.items() if not name.startswith(lost)}

    run = ticket(*SETTINGS)
    monkeypatch.setattr(state, "optimizer_tensors", losing)
    assert run_here(run) == "failed"
    assert states.steps(run.folder) == []
    assert read_result(run.folder)["reason"].startswith(
        "step 5: the optimiser has lost its state: "
    )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_has_state_only_with_momentum(ticket, momentum):
    run = ticket("train.optimizer=sgd", f"train.beta1={momentum}", *SETTINGS)
    assert run_here(run) == "finished"
    kept = {name for name in states.state(run.folder, 13) if name.startswith("optimizer:")}
    assert bool(kept) == bool(momentum)
