"""What the driver of a search does for each trial stays cheap, however many there are."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from time import process_time

import pytest
from result_file import ended
from small_run import SMALL

from subquad.drivers.local import LocalExecutor
from subquad.experiment import Run, load_study
from subquad.record.files import append_line, read_json, write_json
from subquad.record.integrity import write_result
from subquad.record.names import ATTEMPTS, METRICS, SUMMARY, TRIAL
from subquad.search.folder import Trials
from subquad.search.prepare import prepare
from subquad.search.pruner import prune_reason
from subquad.search.search import Search, plan_search
from subquad.search.settings import Settings
from subquad.search.source import TrialSource
from subquad.search.summary import summary_of

MEASURED = 40
SPACE = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, mixer.params.order: {int: [2, 6]}}"


class Driver:
    """A search whose trials are not trained: each has three evaluations, and ends."""

    def __init__(self, folder: Path, search: Search, source: TrialSource, trials: Trials):
        self.folder, self.search, self.source, self.trials = folder, search, source, trials
        self.pruners = {
            candidate.label: search.pruner(candidate) for candidate in search.candidates
        }
        self.random = Random(0)

    def end(self, run: Path, *, judged: bool = True) -> None:
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
            if judged:
                prune_reason(self.trials, self.pruners, run)
        write_result(run, ended("finished", steps=39, seconds=0.3, reason=""))

    def trial(self) -> Run:
        """All that a driver does for one."""
        run = self.source.next()
        assert run is not None
        self.end(run.folder)
        write_json(self.folder / SUMMARY, summary_of(self.search, self.trials, self.source.over))
        return run

    def copy(self, run: Run, count: int) -> None:
        """Trials that ended before, at other points."""
        first = read_json(run.folder / TRIAL) or {}
        for number in range(1, count):
            place = run.folder.with_name(f"{number:05d}")
            place.mkdir()
            point = {
                "train.lr": 10 ** self.random.uniform(-4, -2),
                "mixer.params.order": self.random.randint(2, 6),
            }
            values = {"number": number, "point": point, "settings": first["settings"] | point}
            write_json(place / TRIAL, first | values)
            self.end(place, judged=False)


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
    trials = prepared.search.trials(folder)
    source = TrialSource(prepared, trials, lambda run: None)
    driver = Driver(folder, prepared.search, source, trials)
    driver.copy(driver.trial(), count)
    driver.trial()
    start = process_time()
    for _ in range(MEASURED):
        driver.trial()
    spent = (process_time() - start) / MEASURED
    found = {"trials": count, "sampler": sampler, "pruner": pruner}
    print(json.dumps(found | {"milliseconds of CPU": round(1e3 * spent, 1)}))
    assert len(trials.of("small")) == count + MEASURED + 1
