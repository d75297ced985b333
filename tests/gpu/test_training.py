"""Runs on the device: as on the CPU, exact after a stop; autocast, the compiler, optimisers, the
feed, NCCL.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from built_in import abouts
from result_file import read_result
from small_run import add_up_gradients, digests, on_ranks, run_here, stopped_at

from subquad.engine import feed
from subquad.engine.feed import BAD, Micro
from subquad.engine.step import UNREAD
from subquad.record.metrics import read_records

pytestmark = pytest.mark.gpu

MIXERS = ["agf", "cur", "sfpc", "mdfwa", "softmax"]
PLAIN = ("train.precision=fp64", "backbone.params.dropout=0.0")


def losses(run):
    return np.array(
        [record.metrics["loss"] for record in read_records(run.folder) if record.kind == "train"]
    )


def of(mixer):
    return (f"mixer={json.dumps({'name': mixer, 'params': abouts()[mixer].small})}",)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_run_follows_that_on_the_cpu(ticket, device, mixer):
    there, here = ticket(*PLAIN, *of(mixer)), ticket(*PLAIN, *of(mixer))
    assert run_here(there, device=device) == run_here(here) == "finished"
    np.testing.assert_allclose(losses(there), losses(here), rtol=0, atol=1e-8)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_going_on_after_a_stop_is_exact(ticket, device, mixer, precision):
    settings = (f"train.precision={precision}", "train.schedule=one-cycle", *of(mixer))
    whole, halted = ticket(*settings), ticket(*settings)
    assert run_here(whole, device=device) == "finished"
    assert run_here(halted, stopped_at(20), device) == "stopped"
    assert run_here(halted, device=device) == "finished"
    assert np.isfinite(losses(whole)).all()
    assert digests(halted.folder) == digests(whole.folder)
    assert read_result(halted.folder)["test"] == read_result(whole.folder)["test"]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "radam", "sgd"])
def test_fused_optimisers_follow_the_cpu_and_go_on(ticket, device, optimizer):
    settings = (*PLAIN, f"train.optimizer={optimizer}", "train.weight_decay=0.01")
    there, here = ticket(*settings), ticket(*settings)
    run_here(here)
    assert run_here(there, stopped_at(7), device) == "stopped"
    assert run_here(there, device=device) == "finished"
    np.testing.assert_allclose(losses(there), losses(here), rtol=0, atol=1e-8)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_autocast_stays_near(ticket, device, mixer, precision):
    """Without dropout: on CUDA its mask depends on the number format."""
    settings = ("train.epochs=1", "backbone.params.dropout=0.0", *of(mixer))
    half, full = (ticket(*settings, f"train.precision={kind}") for kind in (precision, "fp32"))
    for run in (half, full):
        run_here(run, device=device)
    np.testing.assert_allclose(losses(half), losses(full), rtol=0, atol=0.05)


@pytest.mark.parametrize(
    "settings", [(), ("train.loader_workers=2", "train.epochs=1"), ("train.micro_batch=5",)]
)
def test_copies_beside_the_work_change_nothing(ticket, device, monkeypatch, settings):
    """Pinned memory and a stream of its own, against copies that are waited for."""
    beside, apart = ticket(*settings), ticket(*settings)
    run_here(beside, device=device)

    def one_by_one(parts, split, fetched):
        for request, arrays in fetched:
            arrays.pop(BAD, None)
            batch = parts.on_device(arrays)
            if device == "cuda":
                torch.cuda.synchronize()
            yield request, Micro(split.finish(batch), request.real, ())

    monkeypatch.setattr(feed, "_micros", one_by_one)
    run_here(apart, device=device)
    assert digests(beside.folder) == digests(apart.folder)


def test_reading_a_step_while_the_next_is_made_changes_nothing(ticket, device, monkeypatch):
    waiting, beside = ticket(), ticket()
    assert run_here(beside, device=device) == "finished"
    monkeypatch.setitem(UNREAD, "cuda", 0)
    assert run_here(waiting, device=device) == "finished"
    assert digests(waiting.folder) == digests(beside.folder)


@pytest.mark.filterwarnings("default")  # torch's compiler warns of itself
@pytest.mark.parametrize("mixer", MIXERS)
def test_compiled_by_inductor_a_run_follows_the_same_curve(ticket, device, mixer):
    settings = ("backbone.params.dropout=0.0", "train.epochs=1", *of(mixer))
    eager, compiled = ticket(*settings), ticket(*settings, "train.compile=true")
    for run in (eager, compiled):
        assert run_here(run, device=device) == "finished"
    np.testing.assert_allclose(losses(compiled), losses(eager), rtol=0, atol=2e-4)


def test_one_rank_of_nccl_adds_up_gradients(device, tmp_path):
    on_ranks(add_up_gradients, (device, f"file://{tmp_path}/rendezvous"), 1)
