"""FSDP2: whole checkpoints at every step, and runs that go on after any kill as if nothing had
happened.

The small run has 26 steps: evaluations at 13 and 26, plain saves at each fifth step.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import states
from odd import odd_mixer
from result_file import read_result
from small_run import stop_ranks_at
from states import losses

SAVED = [5, 10, 13, 15, 20, 25, 26]
SETTINGS = ("train.epochs=2", "train.checkpoint_every_steps=5", "train.keep_checkpoints=20")
KILLS = {
    "after an evaluation": ("kill@step:15",),
    "after a plain save": ("kill@step:12",),
    "before the first save": ("kill@step:4",),
    "twice in a row": ("kill@step:17", "kill@step:4"),
    "in the middle of a save": ("kill@save.half:8",),
    "before a save is whole": ("kill@save.manifest:3",),
}


def on(run, workers, strategy):
    """The run with other processes."""
    resources = run.experiment.resources.model_copy(
        update={"workers": workers, "strategy": strategy}
    )
    return replace(run, experiment=run.experiment.model_copy(update={"resources": resources}))


def train(ranks, run, kills=(), going_on=None):
    """Train a run on the ranks it asks for, kill it, and go on with it."""
    for fault in (*kills, ""):
        resources = run.experiment.resources
        ended = ranks.train(run, resources.workers, fault)
        assert {process.code for process in ended} == {-9 if fault else 0}, ended[0]
        run = going_on or run
    assert read_result(run.folder)["status"] == "finished"
    return run.folder


def same(killed, whole, cut=None):
    """Every checkpoint of both runs, tensor by tensor, and the result.

    Args:
        cut: the step at which a stop cut the evaluation short, which its checkpoint lacks.
    """
    assert states.steps(killed) == states.steps(whole) == SAVED
    names = states.state(whole, SAVED[0]).keys()
    for step in SAVED:
        expected = states.state(whole, step)
        assert expected.keys() == names, f"step {step} of an undisturbed run"
        assert states.unequal(states.state(killed, step), expected) == [], f"step {step}"
        mine, theirs = (states.numbers(run, step) for run in (killed, whole))
        assert mine["rng"] == theirs["rng"]
        assert mine == theirs or step == cut
    assert read_result(killed)["test"] == read_result(whole)["test"]


def sharded(ticket, workers, *more):
    return ticket("resources.strategy=fsdp2", f"resources.workers={workers}", *SETTINGS, *more)


def test_a_sharded_run_goes_on_after_kills(ranks, ticket, tmp_path):
    settings = (f"mixer={odd_mixer(tmp_path)}", "train.ema_decay=0.9")
    whole = train(ranks, sharded(ticket, 2, *settings))
    kills = (*KILLS["after an evaluation"], "kill@step:4", "kill@save.half:3")  # of each process
    same(train(ranks, sharded(ticket, 2, *settings), kills), whole)
    optimizer = {name.removeprefix("optimizer:") for name in states.state(whole, 13)}
    assert "blocks.0.mixer.value.weight/exp_avg" in optimizer
    assert "head.weight/exp_avg_sq" in optimizer
    assert not any(name.startswith("blocks.0.mixer.unused/") for name in optimizer)


@pytest.mark.parametrize("call", [14, 29, 31])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_stop_in_an_evaluation_changes_nothing(ranks, ticket, strategy, call):
    """Calls 14 and 15 are the first evaluation's, 29 and 30 the second one's, then TEST's."""
    settings = (f"resources.strategy={strategy}", "resources.workers=2", *SETTINGS)
    whole, halted = (ticket(*settings, "train.ema_decay=0.9") for _ in range(2))
    stop_ranks_at(call, halted.as_values(), world_size=2)
    assert read_result(halted.folder) is None
    cut = 13 if call == 14 else 26
    assert states.steps(halted.folder)[-1] == cut
    same(train(ranks, halted), train(ranks, whole), cut)
    for name in ("best.json", "last.json"):
        assert (halted.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.extended
@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize(
    ("workers", "more"), [(2, ()), (3, ()), (3, ("train.ema_decay=0.9",)), (4, ())]
)
def test_a_sharded_run_goes_on_after_any_kill(ranks, ticket, workers, kill, more):
    whole = train(ranks, sharded(ticket, workers, *more))
    same(train(ranks, sharded(ticket, workers, *more), KILLS[kill]), whole)


@pytest.mark.extended
@pytest.mark.parametrize(
    "more",
    [
        ("train.optimizer=radam", "train.micro_batch=3"),
        ("train.optimizer=sgd", "train.beta1=0"),
        ("train.optimizer=sgd", "train.activation_checkpointing=true"),
        ("train.optimizer=adam", "train.precision=bf16", "train.schedule=one-cycle"),
        ("train.precision=fp16",),
    ],
)
@pytest.mark.parametrize("workers", [2, 3])
def test_other_optimizers_and_precisions_go_on_too(ranks, ticket, workers, more):
    kills = (*KILLS["after an evaluation"], *KILLS["after a plain save"])
    whole = train(ranks, sharded(ticket, workers, *more))
    same(train(ranks, sharded(ticket, workers, *more), kills), whole)


@pytest.mark.extended
def test_a_model_trains_that_is_four_times_the_memory_of_a_rank(ticket):
    """Weights and gradients of 1.8 GB each, on eight ranks that may take 0.9 GB, so that none can
    hold the weights alone.
    """
    memory = 900_000_000
    sizes = "{num_layers: 96, dim: 512, ffn_dim: 4096, num_heads: 4, dropout: 0.0, head: last}"
    settings = (
        *("resources.strategy=fsdp2", "resources.workers=8", "mixer=identity"),
        *(f"backbone={{name: encoder, params: {sizes}}}", "train.epochs=null", "train.steps=2"),
        *("train.optimizer=sgd", "train.beta1=0"),
        *("protocol=fixed", "train.eval_every_epochs=null"),
    )
    run = ticket(*settings)
    stop_ranks_at(math.inf, run.as_values(), world_size=8, memory=memory)
    result = read_result(run.folder)
    assert result["status"] == "finished"
    assert 2 * 4 * result["parameters"] > 4 * memory
    assert "does not fit into memory" in result["uncounted"][0]


WAYS = [(1, "ddp"), (2, "ddp"), (2, "fsdp2"), (3, "ddp"), (3, "fsdp2"), (4, "fsdp2")]


@pytest.mark.extended
@pytest.mark.parametrize("kill", ["after an evaluation", "after a plain save"])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(WAYS, 2)))
def test_another_number_of_ranks_goes_on_up_to_rounding(ranks, ticket, before, after, kill):
    settings = (
        "train.precision=fp64",
        "backbone.params.dropout=0.0",
        "train.ema_decay=0.9",
        *SETTINGS,
    )
    whole = train(ranks, on(ticket(*settings), *after))
    run = ticket(*settings)
    killed = train(ranks, on(run, *before), KILLS[kill], on(run, *after))
    np.testing.assert_allclose(losses(killed), losses(whole), rtol=0, atol=1e-9)
    for step in SAVED:
        expected, found = states.state(whole, step), states.state(killed, step)
        tensors = [name for name in expected if not name.startswith("rng:")]
        assert {name for name in found if not name.startswith("rng:")} == set(tensors)
        for name in tensors:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-6, err_msg=name)
