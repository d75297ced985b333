"""Weights in unusual memory and of complex numbers are trained as dense ones are, or refused before
the first step.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import states
import torch
from command import cli
from drawn_memory import REFUSED
from result_file import read_result
from safetensors.torch import load_file
from small_run import SMALL, only_run, run_here

import subquad
from subquad.errors import UserError

OPTIMIZERS = ("adamw", "adam", "radam", "sgd")
MODULES = Path(__file__).parents[1] / "support" / "drawn_memory.py"
SHORT = ("train.epochs=1", "train.checkpoint_every_steps=5", "train.keep_checkpoints=9")
KINDS = [(), ("train.ema_decay=0.9",), ("train.precision=fp64",), ("train.precision=bf16",)]


def mixer(name, **params):
    given = [f"mixer.params.{key}={value}" for key, value in params.items()]
    return (f"mixer={MODULES}:{name}", *given)


def trained(ticket, *settings):
    """The state of a finished run at its last step."""
    run = ticket(*SHORT, *settings)
    assert run_here(run) == "finished"
    return states.state(run.folder, 13)


def train_drawn(ticket, seed, optimizer, more=(), train=trained):
    """A drawn module ends with the very numbers of its dense twin."""
    settings = (f"train.optimizer={optimizer}", *more)
    found = train(ticket, *settings, *mixer("Drawn", seed=seed))
    wanted = train(ticket, *settings, *mixer("Drawn", seed=seed, dense=True))
    assert states.unequal(found, wanted) == [], f"seed {seed}, {settings}"
    return found


def refused(ticket, number):
    run = ticket(*SHORT, *mixer("Drawn", refused=number))
    with pytest.raises(UserError, match=[*REFUSED.values()][number]) as caught:
        run_here(run)
    assert "\n" not in str(caught.value)
    assert not list(run.folder.rglob("*.safetensors"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_layout_is_trained_as_its_dense_twin(ticket, optimizer):
    found = train_drawn(ticket, -1, optimizer)
    assert all(tensor.isfinite().all() for tensor in found.values())


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_trained_is_refused_by_name(ticket, number):
    refused(ticket, number)


@pytest.mark.extended
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_drawn_memory(ticket, ranks, guard_seed, guard_rows, optimizer):
    def on_two(ticket, *settings):
        return on_ranks(ranks, ticket, *settings)

    for number in range(guard_rows or 200):
        seed = guard_seed % 10**6 + number
        if number % 10 == 9:
            refused(ticket, seed % len(REFUSED))
        elif number % 10 == 8:
            train_drawn(ticket, seed, optimizer, train=on_two)
        else:
            train_drawn(ticket, seed, optimizer, KINDS[number % len(KINDS)])


@pytest.mark.parametrize("more", [(), ("train.ema_decay=0.9", "train.clip_norm=0.01")])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_complex_weights_are_trained_as_pairs_of_real_ones(ticket, optimizer, more):
    settings = (f"train.optimizer={optimizer}", "train.precision=fp64", *more)
    found = trained(ticket, *settings, *mixer("Pairs"))
    wanted = trained(ticket, *settings, *mixer("Pairs", real=True))
    shown = {name.removesuffix(":complex128"): tensor for name, tensor in found.items()}
    assert shown.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(shown[name], tensor, rtol=1e-9, atol=1e-12)


def on_ranks(ranks, ticket, *settings, kills=()):
    run = ticket(*SHORT, "resources.workers=2", *settings)
    for fault in (*kills, ""):
        ended = ranks.train(run, 2, fault)
        assert {process.code for process in ended} == {-9 if fault else 0}, ended[0].trace
    assert read_result(run.folder)["status"] == "finished"
    return states.state(run.folder, 13)


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_a_complex_model_goes_on_after_kills_on_two_processes(ranks, ticket, precision):
    same = ("train.ema_decay=0.9", "backbone.params.dropout=0")  # it is drawn on each rank
    settings = (*mixer("Drawn", seed=-1), *same, f"train.precision={precision}")
    whole = on_ranks(ranks, ticket, *settings)
    killed = on_ranks(ranks, ticket, *settings, kills=("kill@step:7", "kill@step:4"))
    assert states.unequal(killed, whole) == []
    alone = trained(ticket, *settings)
    for name in whole.keys() & {name for name in alone if not name.startswith("rng:")}:
        torch.testing.assert_close(whole[name], alone[name], rtol=2e-3, atol=2e-4)


def test_fsdp_refuses_complex_weights(ranks, ticket):
    run = ticket(*SHORT, *mixer("Pairs"), "resources.workers=2", "resources.strategy=fsdp2")
    ended = ranks.train(run, 2)
    assert ended[0].error == (
        "ConfigError: resources.strategy: got 'fsdp2', which cannot shard complex weights "
        "(blocks.0.mixer.module.weight); use ddp"
    )


@pytest.mark.parametrize(("precision", "kind"), [("fp32", "complex64"), ("fp64", "complex128")])
def test_a_complex_model_from_start_to_export(tmp_path, precision, kind):
    (tmp_path / "small.yaml").write_text(SMALL)
    settings = [*SHORT, *mixer("Pairs"), f"train.precision={precision}"]
    train = ["train", "small.yaml", "--local", *settings]
    cli([*train, "--root", "a"], tmp_path)
    run = only_run(tmp_path / "a")
    cli(["export", str(run), str(tmp_path / "out")], tmp_path)
    for model in (subquad.load(run), subquad.load(tmp_path / "out")):
        assert str(model.blocks[0].mixer.module.weight.dtype) == f"torch.{kind}"
    cli([*train, "--root", "b", f"init.from={run}"], tmp_path)
    assert read_result(only_run(tmp_path / "b"))["init"]["missing"] == []
    # real pairs are another kind of number: nothing is cut off without a word
    real = ["mixer.params.real=true", f"init.from={run}"]
    ended = cli([*train, "--root", "c", *real], tmp_path, check=2)
    assert "1 missing (blocks.0.mixer.module.weight)" in ended.stderr


def test_checkpoints_have_complex_numbers(ticket):
    run = ticket(*SHORT, *mixer("Pairs"))
    assert run_here(run) == "finished"
    kept = load_file(run.folder / "checkpoints" / "step-00000013" / "model.safetensors")
    assert kept["blocks.0.mixer.module.weight"].dtype == torch.complex64
