"""Searches in real MLflow stores: a parent, a child for each trial, while it runs, after kills,
and sent later.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run
from result_file import ended

from subquad.cli.main import main
from subquad.errors import RunError
from subquad.experiment.schema import Tracking
from subquad.record.files import write_json
from subquad.record.metrics import Record
from subquad.record.names import ATTEMPTS, METRICS, RESULT, SEARCH, SUMMARY, TRIAL
from subquad.search.folder import trial_folder
from subquad.tracking.address import DATABASE, sqlite_uri
from subquad.tracking.address import SETTINGS as MLFLOW
from subquad.tracking.importing import Importer
from subquad.tracking.mlflow import Store
from subquad.tracking.publisher import Publisher, Summary, open_publisher, sync

SETTINGS = {"space": "agf", "sampler": "random", "pruner": "asha", "budget": "3-trials", "seed": 0}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, value in MLFLOW.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without experiments: making one takes seconds."""
    folder = tmp_path_factory.mktemp("template")
    Store(Publisher(folder, sqlite_uri(folder / DATABASE), "template"))
    return folder / DATABASE


@dataclass
class Folder:
    """A search's folder as `subquad tune` writes it."""

    path: Path

    def begin(self) -> None:
        self.path.mkdir(parents=True)
        fields = {
            "format": 1,
            "settings": SETTINGS,
            "experiment": {"name": "demo", "tracking": {"uri": None}},
        }
        (self.path / SEARCH).write_text(yaml.safe_dump(fields))

    def trial(self, number: int, *, candidate: str = "agf", lr: float = 0.1) -> Path:
        """A trial that has begun."""
        folder = trial_folder(self.path, candidate, number)
        point = {"train.lr": lr}
        settings = point | {"train.epochs": 2}
        write_json(folder / TRIAL, {"point": point, "settings": settings})
        facts = {
            "name": "demo",
            "mixer": {"name": candidate},
            "dataset": {"name": "recall"},
            "train": {"lr": 9, "seed": 3},
        }
        (folder / "experiment.yaml").write_text(yaml.safe_dump(facts))
        (folder / ATTEMPTS).write_text("{}\n")
        return folder

    def refused(self, number: int, reason: str, *, candidate: str = "agf") -> None:
        trial = {"point": {"train.lr": 7}, "state": "infeasible", "reason": reason}
        write_json(trial_folder(self.path, candidate, number) / TRIAL, trial)

    def summary(
        self, over: str, *, candidate: str = "agf", best: int | None = 0, **states: int
    ) -> None:
        found = {"number": best, "point": {"train.lr": 0.1}, "step": 2, "value": 0.75, "loss": 1.0}
        entry = {
            "label": candidate,
            "metric": "accuracy",
            "metrics": {"accuracy": {"unit": "%"}},
            "over": over,
            "final": [],
            "trials": {"finished": 1, "running": 0, **states},
        }
        entry |= {
            "steps": 6,
            "flops": 300.0,
            "seconds": 1.5,
            "dimensions": 1,
            "best": None if best is None else found,
        }
        write_json(self.path / SUMMARY, {"candidates": [entry]})

    def winner(self) -> None:
        for name in ("best/agf.yaml", "plots/best-so-far.png"):
            (self.path / name).parent.mkdir(exist_ok=True)
            (self.path / name).write_bytes(b"name: demo\n")


def train(run: Path, steps: range, *, accuracy: float | None = None) -> None:
    records = [
        Record(
            kind="train",
            step=step,
            epoch=0,
            seconds=step,
            time=1_700_000_000 + step,
            metrics={"loss": 1 / step},
        )
        for step in steps
    ]
    if accuracy is not None:
        values = {"accuracy": accuracy, "loss": 1.0}
        last = steps[-1]
        records.append(
            Record(
                kind="eval",
                step=last,
                epoch=0,
                seconds=9,
                time=1.7e9 + last,
                split="validation",
                metrics=values,
            )
        )
    with (run / METRICS).open("a") as stream:
        stream.writelines(record.line() for record in records)


def end(run: Path, status: str = "finished", accuracy: float = 0.75, **more: Any) -> None:
    best = {"step": 2, "metrics": {"accuracy": accuracy}}
    fields = {
        **ended(status),
        "metric": "accuracy",
        "steps": 2,
        "seconds": 0.5,
        "flops_per_step": 50,
        "best": best,
    }
    label = "a trial of a search: test not opened"
    write_json(run / RESULT, {**fields, "test": None, "protocol_label": label, **more})


@pytest.fixture
def search(tmp_path: Path, template: Path) -> Folder:
    """A search that was just written down, in a root with a database."""
    shutil.copy(template, tmp_path / DATABASE)
    made = Folder(tmp_path / "runs" / "demo-search" / "20260101-000000-abcdef01")
    made.begin()
    return made


def root_of(search: Folder) -> Path:
    return search.path.parents[2]


def upload_for(search: Folder, uri: str | None = None) -> Publisher:
    root = root_of(search)
    uri = uri or sqlite_uri(root / DATABASE)
    return Publisher(uri=uri, experiment="demo", folder=search.path)


def deliver(search: Folder, *, final: bool = True) -> Summary:
    return Importer(upload_for(search)).look(final=final)


def client(search: Folder) -> MlflowClient:
    return MlflowClient(sqlite_uri(root_of(search) / DATABASE))


def runs_by_name(search: Folder) -> dict[str, Run]:
    """All runs of the store; fails where two have one name."""
    store = client(search)
    found = store.search_runs(
        [experiment.experiment_id for experiment in store.search_experiments()]
    )
    names = [run.info.run_name or "" for run in found]
    assert len(set(names)) == len(names), names
    return dict(zip(names, found, strict=True))


PARENT = "demo-search/20260101-000000-abcdef01"


def test_trials_appear_while_the_search_runs(search: Folder):
    delivery = Importer(upload_for(search))
    assert delivery.look(final=False).error is None
    assert set(runs_by_name(search)) == {PARENT}
    train(search.trial(0), range(1, 3))
    assert delivery.look(final=False).error is None
    assert {name: run.info.status for name, run in runs_by_name(search).items()} == {
        PARENT: "RUNNING",
        "agf-00000": "RUNNING",
    }
    end(trial_folder(search.path, "agf", 0))
    train(search.trial(1), range(1, 2))
    assert delivery.look(final=False).error is None
    assert {name: run.info.status for name, run in runs_by_name(search).items()} == {
        PARENT: "RUNNING",
        "agf-00000": "FINISHED",
        "agf-00001": "RUNNING",
    }


def test_a_trial_says_what_it_is_and_what_it_came_to(search: Folder):
    run = search.trial(0, lr=0.25)
    train(run, range(1, 3), accuracy=0.75)
    end(run)
    summary = deliver(search)
    found, store = runs_by_name(search), client(search)
    trial = found["agf-00000"]
    assert trial.data.params == {
        **{"name": "demo", "mixer.name": "agf", "dataset.name": "recall", "train.seed": "3"},
        **{"train.lr": "0.25", "train.epochs": "2"},
    }
    expected = {
        "subquad.kind": "trial",
        "subquad.search": PARENT,
        "subquad.candidate": "agf",
        "subquad.trial": "0",
    }
    expected |= {"subquad.status": "finished", "mlflow.parentRunId": summary.run_id}
    assert expected.items() <= trial.data.tags.items()
    assert trial.data.tags["subquad.protocol_label"] == "a trial of a search: test not opened"
    assert trial.data.metrics["objective"] == 0.75
    assert store.get_metric_history(trial.info.run_id, "objective")[0].step == 2
    assert {key: value for key, value in trial.data.metrics.items() if key.startswith("cost/")} == {
        "cost/steps": 2,
        "cost/flops_per_step": 50,
        "cost/flops": 100,
        "cost/seconds": 0.5,
    }
    assert [
        metric.step for metric in store.get_metric_history(trial.info.run_id, "train/loss")
    ] == [1, 2]
    names = {artifact.path for artifact in store.list_artifacts(trial.info.run_id)}
    assert names == {"trial.json", "experiment.yaml", "result.json", "metrics.jsonl"}


def test_each_way_to_end_is_told(search: Folder):
    for number, status in enumerate(("finished", "pruned", "failed")):
        run = search.trial(number)
        train(run, range(1, 3))
        end(run, status, reason=f"why {status}")
    train(search.trial(3), range(1, 3))
    search.refused(4, "order: too large")
    deliver(search)
    found = {name: run for name, run in runs_by_name(search).items() if name != PARENT}
    states = {
        name: (run.info.status, run.data.tags.get("subquad.status")) for name, run in found.items()
    }
    assert states == {
        "agf-00000": ("FINISHED", "finished"),
        "agf-00001": ("FINISHED", "pruned"),
        "agf-00002": ("FAILED", "failed"),
        "agf-00003": ("KILLED", "killed"),
        "agf-00004": ("KILLED", "infeasible"),
    }
    assert [name for name, run in found.items() if "objective" in run.data.metrics] == ["agf-00000"]
    assert found["agf-00001"].data.tags["subquad.reason"] == "why pruned"
    assert found["agf-00004"].data.tags["subquad.reason"] == "order: too large"
    assert found["agf-00004"].data.params == {"train.lr": "7"}


def test_the_parent_has_winners_consumption_and_files(search: Folder):
    run = search.trial(0)
    train(run, range(1, 3))
    end(run)
    search.summary("budget used")
    search.winner()
    summary = deliver(search)
    parent, store = runs_by_name(search)[PARENT], client(search)
    assert (summary.delivered, parent.info.status, parent.info.run_id) == (
        True,
        "FINISHED",
        summary.run_id,
    )
    assert parent.data.params == {key: str(value) for key, value in SETTINGS.items()}
    winner = json.loads(parent.data.tags["subquad.winner.agf"])
    assert (winner["number"], winner["value"], winner["point"]) == (0, 0.75, {"train.lr": 0.1})
    expected = {
        "agf/steps": 6,
        "agf/flops": 300,
        "agf/seconds": 1.5,
        "agf/dimensions": 1,
        "agf/objective": 0.75,
    }
    assert expected.items() <= parent.data.metrics.items()
    assert parent.data.metrics["agf/trials_finished"] == 1
    assert {artifact.path for artifact in store.list_artifacts(parent.info.run_id)} == {
        SEARCH,
        SUMMARY,
        "best",
        "plots",
    }
    assert [artifact.path for artifact in store.list_artifacts(parent.info.run_id, "best")] == [
        "best/agf.yaml"
    ]
    assert [artifact.path for artifact in store.list_artifacts(parent.info.run_id, "plots")] == [
        "plots/best-so-far.png"
    ]


@pytest.mark.parametrize(
    ("over", "states", "best", "status"),
    [
        ("", {}, 0, "KILLED"),
        ("budget used", {"running": 1}, 0, "KILLED"),
        ("budget used", {}, None, "FAILED"),
        ("budget used", {}, 0, "FINISHED"),
    ],
)
def test_a_search_is_finished_once_no_trial_is_to_come(search: Folder, over, states, best, status):
    search.summary(over, best=best, **states)
    deliver(search)
    assert runs_by_name(search)[PARENT].info.status == status


def test_a_resumed_search_goes_on_in_the_same_runs(search: Folder):
    done, cut = search.trial(0), search.trial(1)
    train(done, range(1, 3))
    end(done)
    train(cut, range(1, 3))
    search.summary("", running=1)
    first = deliver(search)
    assert runs_by_name(search)["agf-00001"].info.status == "KILLED"
    train(cut, range(3, 5))
    end(cut)
    train(search.trial(2), range(1, 2))
    assert deliver(search, final=False).error is None
    status = {name: run.info.status for name, run in runs_by_name(search).items()}
    assert status == {
        PARENT: "RUNNING",
        "agf-00000": "FINISHED",
        "agf-00001": "FINISHED",
        "agf-00002": "RUNNING",
    }
    end(trial_folder(search.path, "agf", 2))
    search.summary("budget used")
    last = deliver(search)
    assert last.run_id == first.run_id
    assert {run.info.status for run in runs_by_name(search).values()} == {"FINISHED"}
    again = runs_by_name(search)["agf-00001"].info.run_id
    steps = [metric.step for metric in client(search).get_metric_history(again, "train/loss")]
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_trial_that_was_sent_whole_is_not_looked_at_again(search: Folder, status: str):
    run = search.trial(0)
    train(run, range(1, 3))
    end(run, status)
    delivery = Importer(upload_for(search))
    assert delivery.look(final=False).error is None
    (run / "environment.json").mkdir()  # which nobody can send
    train(search.trial(1), range(1, 3))
    assert delivery.look(final=False).error is None
    (run / "environment.json").rmdir()
    assert "agf-00001" in runs_by_name(search)
    (run / RESULT).unlink()
    train(run, range(3, 5))
    del delivery
    assert deliver(search, final=False).error is None
    assert runs_by_name(search)["agf-00000"].info.status == "RUNNING"


def test_sync_sends_all_of_a_search_that_had_no_server(
    search: Folder, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{probe.getsockname()[1]}"
    run = search.trial(0)
    train(run, range(1, 3))
    assert not Importer(upload_for(search, dead)).look(final=True).delivered
    end(run)
    search.summary("budget used")
    (search.path / "final" / "cells" / "agf-seed0").mkdir(parents=True)
    (search.path / "final" / "study.yaml").write_text("matrix: {seed: [0]}\n")
    cell = search.path / "final" / "cells" / "agf-seed0"
    (cell / "experiment.yaml").write_text("name: demo\n")
    train(cell, range(1, 4))
    end(cell, test={"metrics": {"accuracy": 0.5}, "step": 2})
    uri = sqlite_uri(root_of(search) / DATABASE)
    assert main(["sync", str(search.path), "--uri", uri]) == 0
    assert capsys.readouterr().out == f"{search.path}: delivered to {uri}\n"
    found = runs_by_name(search)
    names = {run.info.run_id: name for name, run in found.items()}
    above = {
        name: names.get(run.data.tags.get("mlflow.parentRunId", "")) for name, run in found.items()
    }
    assert above == {PARENT: None, "agf-00000": PARENT, "final": PARENT, "agf-seed0": "final"}
    assert found["agf-seed0"].data.metrics["test/accuracy"] == 0.5


def test_sending_a_search_again_or_by_one_of_its_trials_changes_nothing(search: Folder):
    run = search.trial(0)
    train(run, range(1, 3))
    end(run)
    search.summary("budget used")
    search.winner()
    first = deliver(search)
    before = {name: run.to_dictionary() for name, run in runs_by_name(search).items()}
    times = {path: path.stat().st_mtime_ns for path in (root_of(search) / "mlartifacts").rglob("*")}
    assert sync(search.path) == first
    assert sync(run) == first
    assert {name: run.to_dictionary() for name, run in runs_by_name(search).items()} == before
    assert {
        path: path.stat().st_mtime_ns for path in (root_of(search) / "mlartifacts").rglob("*")
    } == times


def test_what_was_drawn_anew_is_sent_anew(search: Folder):
    search.summary("budget used")
    search.winner()
    deliver(search)
    (search.path / "plots" / "agf-slice.png").write_bytes(b"picture")
    parent = deliver(search).run_id
    plots = [artifact.path for artifact in client(search).list_artifacts(parent, "plots")]
    assert plots == ["plots/agf-slice.png", "plots/best-so-far.png"]


def test_a_folder_that_is_no_run_of_any_kind_is_refused(tmp_path: Path):
    with pytest.raises(
        RunError, match=r"nothing: neither a run \(no experiment.yaml\) nor a study"
    ):
        sync(tmp_path / "nothing")


def test_the_final_study_is_below_its_search_while_both_are_sent(search: Folder):
    parent = deliver(search, final=False).run_id
    cell = search.path / "final" / "cells" / "agf-seed0"
    cell.mkdir(parents=True)
    train(cell, range(1, 3))
    (search.path / "final" / "study.yaml").write_text("matrix: {seed: [0]}\n")
    (cell / "experiment.yaml").write_text("name: demo\n")
    assert deliver(search, final=False).error is None
    found = runs_by_name(search)
    assert found["final"].data.tags["mlflow.parentRunId"] == parent
    assert found["agf-seed0"].data.tags["subquad.kind"] == "final"
    query = f"tags.\"subquad.search\" = '{PARENT}'"
    ids = [experiment.experiment_id for experiment in client(search).search_experiments()]
    assert {run.info.run_name for run in client(search).search_runs(ids, query)} == {
        PARENT,
        "final",
        "agf-seed0",
    }


def test_a_driver_that_is_killed_leaves_a_search_that_sync_finds_whole(search: Folder):
    run = search.trial(0)
    train(run, range(1, 6))
    code = (
        "import os, sys; from pathlib import Path; from subquad.experiment.schema import Tracking;"
        "from subquad.tracking.publisher import open_publisher;"
        "one = open_publisher(Tracking(), Path(sys.argv[1]), name='demo');"
        "one.start(); print(one._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    arguments = [sys.executable, "-c", code, str(search.path)]
    driver = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert driver.returncode == -signal.SIGKILL
    assert psutil.wait_procs([psutil.Process(int(driver.stdout))], timeout=90)[1] == []
    assert {name: run.info.status for name, run in runs_by_name(search).items()} == {
        PARENT: "KILLED",
        "agf-00000": "KILLED",
    }
    end(run)
    search.summary("budget used")
    publisher = open_publisher(Tracking(), search.path, name="demo")
    publisher.start()
    assert publisher.close(timeout=90).delivered
    assert {run.info.status for run in runs_by_name(search).values()} == {"FINISHED"}
