"""What the driver of a search does for each trial stays cheap, however many there are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time

import pytest
from result_file import ended
from small_run import SMALL

from subquad.execution.local import LocalExecutor
from subquad.experiment import Run, load_study
from subquad.record.files import append_line, write_json
from subquad.record.integrity import write_result
from subquad.record.names import ATTEMPTS, METRICS, SUMMARY
from subquad.search.fitting import Prepared
from subquad.search.prepare import prepare
from subquad.search.sampler import Sampler
from subquad.search.search import plan_search
from subquad.search.settings import Settings
from subquad.search.source import TrialSource
from subquad.search.summary import summary_of
from subquad.search.trial import Evaluation, Trial

MEASURED = 40
SPACE = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, mixer.params.order: {int: [2, 6]}}"


class Driver:
    """A search whose trials are not trained: each has three evaluations, and ends."""

    def __init__(self, folder: Path, prepared: Prepared):
        self.folder, self.search = folder, prepared.search
        self.trials = prepared.search.trials(folder)
        self.source = TrialSource(prepared, folder, self.trials)
        self.random = Random(0)

    def end(self, run: Path) -> None:
        append_line(
            run / ATTEMPTS,
            {"attempt": 1, "from_step": 0, "launch": "", "world_size": 1, "threads": 1},
        )
        for step in (13, 26, 39):
            scores = {"accuracy": self.random.random(), "loss": self.random.random()}
            place = {"step": step, "epoch": step / 13, "seconds": 0.1, "time": 1.0}
            append_line(
                run / METRICS, {"kind": "eval", "split": "validation", "metrics": scores, **place}
            )
            if self.search.settings.pruner != "none":
                self.source.reason_to_stop(run)
        write_result(run, ended("finished", steps=39, seconds=0.3, reason=""))
        self.source.ended(run)

    def trial(self) -> Run:
        """All that a driver does for one."""
        run = self.source.next()
        assert run is not None
        self.end(run.folder)
        summary = summary_of(self.search, self.folder, self.trials, self.source.over)
        write_json(self.folder / SUMMARY, summary)
        return run

    def many(self, count: int) -> None:
        """Trials that ended before, at random points."""
        (trials,) = self.trials.values()
        (candidate,) = self.search.candidates
        sampler = Sampler("random", candidate.space, 1)
        evaluation = Evaluation(step=39, value=0.0, loss=0.0)
        for _ in range(count):
            number = len(trials.known)
            point = trials.ask(sampler)
            assert point is not None
            best = replace(evaluation, value=self.random.random())
            trials.record(
                Trial(
                    candidate=candidate.label,
                    number=number,
                    point=point,
                    state="finished",
                    total_steps=39,
                    flops_per_step=1,
                    best=best,
                    steps=39,
                    seconds=0.3,
                )
            )


@pytest.mark.extended
@pytest.mark.parametrize(("sampler", "pruner"), [("random", "none"), ("tpe", "median")])
@pytest.mark.parametrize("count", [200, 2000])
def test_cpu_time_of_a_trial(tmp_path, monkeypatch, sampler, pruner, count):
    """`pytest -s -m extended tests/unit/search/test_driver_cost.py` prints it."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    Path("space.yaml").write_text(SPACE)
    study = load_study("small.yaml")
    budget = f"{count + MEASURED + 2}-trials"
    settings = Settings("./space.yaml", sampler=sampler, pruner=pruner, budget=budget)
    prepared = prepare(plan_search(study, settings), LocalExecutor())
    folder = tmp_path / "search"
    folder.mkdir()
    driver = Driver(folder, prepared)
    driver.many(count)
    driver.trial()
    start = process_time()
    for _ in range(MEASURED):
        driver.trial()
    spent = (process_time() - start) / MEASURED
    found = {"trials": count, "sampler": sampler, "pruner": pruner}
    print(json.dumps(found | {"milliseconds of CPU": round(1e3 * spent, 1)}))
    assert len(driver.trials["small"].known) == count + MEASURED + 1
