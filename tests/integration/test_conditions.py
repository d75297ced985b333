"""What "bit for bit" needs is recorded, and told where it does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from result_file import read_result
from small_run import one_run, run_here, stopped_at

from subquad.engine.attempts import _rounded
from subquad.engine.group import Group
from subquad.execution.worker import work
from subquad.record.metrics import Attempt, read_attempts, read_records


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def told(run):
    return [
        record.text for record in read_records(run.folder) if record.text.startswith("goes on with")
    ]


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_other_threads_are_recorded_and_told(ticket, threads):
    run = ticket("train.epochs=1", "train.checkpoint_every_steps=5")
    work(one_run(run), Group(), stopped_at(7), restarts=False)
    resources = run.experiment.resources.model_copy(update={"cpus_per_worker": float(threads)})
    other = replace(run, experiment=run.experiment.model_copy(update={"resources": resources}))
    work(one_run(other), Group(), lambda: 0, restarts=False)
    assert read_result(run.folder)["status"] == "finished"
    assert [attempt.threads for attempt in read_attempts(run.folder)] == [1, threads]
    line = "goes on with 2 threads of each worker (resources.cpus_per_worker) instead of 1"
    assert told(run) == ([] if threads == 1 else [f"{line}: equal up to rounding, not bit for bit"])


def test_a_run_that_begins_anew_has_nothing_to_tell(ticket):
    run = ticket("train.epochs=1")
    assert run_here(run) == "finished"
    assert told(run) == []


def test_only_an_attempt_that_got_on_counts():
    first, idle, last = (
        Attempt(n, step, "", n % 2 + 1, 1) for n, step in ((1, 0), (2, 10), (3, 10))
    )
    assert (first.world_size, idle.world_size) == (2, 1)
    assert _rounded([first, idle], last) == []
    (line,) = _rounded([first], idle)
    assert (
        line
        == "goes on with resources.workers 1 instead of 2: equal up to rounding, not bit for bit"
    )
    assert _rounded([], first) == []
