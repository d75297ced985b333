"""Tracking against real MLflow stores: sqlite files, a loopback server, and servers that are not
there.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from result_file import ended

from subquad.cli.main import main
from subquad.experiment.schema import Tracking
from subquad.record.files import write_json
from subquad.record.metrics import Record, metrics_file
from subquad.record.names import METRICS, RESULT
from subquad.tracking.address import DATABASE, SETTINGS, sqlite_uri
from subquad.tracking.importing import Importer
from subquad.tracking.mlflow import Store
from subquad.tracking.publisher import Publisher, Summary, open_publisher, sync
from subquad.tracking.server import USER, serving


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without experiments: making one takes seconds."""
    folder = tmp_path_factory.mktemp("template")
    Store(Publisher(folder, sqlite_uri(folder / DATABASE), "template"))
    return folder / DATABASE


@pytest.fixture
def root(tmp_path: Path, template: Path) -> Path:
    """A folder that holds runs/ and a database."""
    shutil.copy(template, tmp_path / DATABASE)
    return tmp_path


class Folder:
    """A run directory as the engine writes it."""

    def __init__(self, path: Path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.settings()

    def settings(self, **more: Any):
        fields = {"name": self.path.name, "mixer": {"name": "agf"}, "train": {"lr": 0.001}, **more}
        (self.path / "experiment.yaml").write_text(yaml.safe_dump(fields))

    def record(
        self,
        step: int,
        metrics: Mapping[str, float],
        kind: str = "train",
        split: str = "",
        attempt: int = 1,
    ):
        time = 1_700_000_000 + 1000 * attempt + step
        record = Record(
            kind=kind,  # type: ignore[arg-type]
            step=step,
            epoch=step / 10,
            seconds=step,
            time=time,
            attempt=attempt,
            split=split,
            metrics=metrics,
        )
        with metrics_file(self.path, attempt).open("a") as stream:
            stream.write(record.line())

    def train(self, steps: range, attempt: int = 1):
        for step in steps:
            self.record(step, {"loss": 1 / (1 + step), "lr": 0.001}, attempt=attempt)

    def result(self, status: str = "finished", **more):
        test = {"metrics": {"accuracy": 0.75}, "samples": 8, "checkpoint": "best", "step": 3}
        fields = {
            **ended(status, dataset="recall"),
            "protocol_label": "chosen on validation",
            "metric": "accuracy",
        }
        write_json(self.path / RESULT, {**fields, "label": self.path.name, "test": test, **more})


@pytest.fixture
def run(root: Path) -> Folder:
    return Folder(root / "runs" / "demo" / "20260101-000000-abcdef01")


def upload_for(root: Path, folder: Path, uri: str | None = None) -> Publisher:
    uri = uri or sqlite_uri(root / DATABASE)
    return Publisher(uri=uri, experiment="demo", folder=folder)


def deliver(publisher: Publisher, *, final: bool = True) -> Summary:
    """What the process beside the driver does in one look."""
    return Importer(publisher).look(final=final)


def client(uri_or_root: str | Path) -> MlflowClient:
    return MlflowClient(
        sqlite_uri(uri_or_root / DATABASE) if isinstance(uri_or_root, Path) else uri_or_root
    )


def all_runs(store: MlflowClient):
    return store.search_runs(
        [experiment.experiment_id for experiment in store.search_experiments()]
    )


def history(store: MlflowClient, run_id: str, key: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in store.get_metric_history(run_id, key))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_finished_run_is_there_with_everything(root: Path, run: Folder):
    run.train(range(1, 4))
    run.record(3, {"loss": 0.5, "accuracy": 0.7}, kind="eval", split="validation")
    run.record(3, {"cpu_utilization_percentage": 12.5}, kind="system")
    run.result()
    write_json(run.path / "environment.json", {"git": {"commit": "abc", "dirty": False}})
    write_json(run.path / "identity.json", ended("", digest="d", dataset="recall"))
    run.settings(dataset={"name": "recall", "params": {"num_keys": 6}})
    summary = deliver(upload_for(root, run.path))
    store = client(root)
    found = store.get_run(summary.run_id)
    assert (summary.delivered, summary.error) == (True, None)
    assert store.get_experiment(found.info.experiment_id).name == "demo"
    assert (found.info.run_name, found.info.status) == (f"demo/{run.path.name}", "FINISHED")
    assert found.info.start_time == 1_700_001_001_000
    data = {"dataset.name": "recall", "dataset.params.num_keys": 6}
    assert found.data.params == {
        **{"name": run.path.name, "train.lr": "0.001", "mixer.name": "agf"},
        **{name: str(value) for name, value in data.items()},
    }
    assert found.inputs
    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, json.loads(used.dataset.source)) == ("recall", data)
    assert history(store, found.info.run_id, "train/loss") == [(1, 1 / 2), (2, 1 / 3), (3, 1 / 4)]
    assert store.get_metric_history(found.info.run_id, "train/lr")[0].timestamp == 1_700_001_001_000
    assert history(store, found.info.run_id, "validation/accuracy") == [(3, 0.7)]
    assert history(store, found.info.run_id, "system/cpu_utilization_percentage") == [(3, 12.5)]
    assert history(store, found.info.run_id, "test/accuracy") == [(3, 0.75)]
    expected = {"subquad.mixer": "agf", "subquad.status": "finished", "subquad.protocol": "honest"}
    expected |= {
        "subquad.protocol_label": "chosen on validation",
        "mlflow.source.git.commit": "abc",
    }
    assert expected.items() <= found.data.tags.items()
    names = {artifact.path for artifact in store.list_artifacts(found.info.run_id)}
    assert names == {"experiment.yaml", "environment.json", "result.json", "metrics.jsonl"}
    assert not any(run.path.glob("*mlflow.json"))


def test_sending_again_changes_nothing(root: Path, run: Folder):
    run.train(range(1, 4))
    run.result()
    first = deliver(upload_for(root, run.path))
    second = deliver(upload_for(root, run.path))
    store = client(root)
    assert second == first
    assert len(all_runs(store)) == 1
    assert [step for step, _ in history(store, first.run_id, "train/loss")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("status", "expected"),
    [("failed", "FAILED"), ("stopped", "KILLED"), (None, "KILLED"), ("finished", "FINISHED")],
)
def test_the_end_is_told_as_it_was(root: Path, run: Folder, status: str | None, expected: str):
    run.train(range(1, 2))
    if status:
        run.result(status, reason="three non-finite steps" if status == "failed" else None)
    summary = deliver(upload_for(root, run.path))
    found = client(root).get_run(summary.run_id)
    assert (summary.delivered, found.info.status) == (True, expected)
    assert found.data.tags.get("subquad.reason") == (
        "three non-finite steps" if status == "failed" else None
    )


def test_values_that_are_not_finite_are_no_numbers(root: Path, run: Folder):
    run.record(1, {"loss": 1.0})
    run.record(2, {"loss": math.inf, "grad_norm": math.nan})
    run.record(3, {"loss": -math.inf})
    run.record(4, {"loss": 0.5})
    run.result()
    run_id = deliver(upload_for(root, run.path)).run_id
    losses = history(client(root), run_id, "train/loss")
    assert [step for step, value in losses if math.isnan(value)] == [2, 3]
    assert [value for _, value in losses if not math.isnan(value)] == [1.0, 0.5]
    [(step, value)] = history(client(root), run_id, "train/grad_norm")
    assert (step, math.isnan(value)) == (2, True)


def test_more_metrics_than_one_call_takes(root: Path, run: Folder):
    run.record(1, {f"m{index}": float(index) for index in range(2300)})
    run.train(range(2, 1203))
    summary = deliver(upload_for(root, run.path))
    store = client(root)
    metrics = store.get_run(summary.run_id).data.metrics
    assert sum(key.startswith("train/m") for key in metrics) == 2300
    assert metrics["train/m2299"] == 2299.0
    assert len(store.get_metric_history(summary.run_id, "train/loss")) == 1201


def test_long_many_and_oddly_named_parameters(root: Path, run: Folder):
    many = {f"p{index}": index for index in range(130)}
    run.settings(**many, **{"long": "é" * 7000, "a@b": 1, "a#b": 2, "empty": ""})
    run.record(1, {"top@5": 1.0, "../x": 2.0})
    summary = deliver(upload_for(root, run.path))
    data = client(root).get_run(summary.run_id).data
    assert (summary.error, len(data.params)) == (None, 137)
    assert data.params["long"] == "é" * 6000
    assert sorted(value for key, value in data.params.items() if key.startswith("a_b")) == [
        "1",
        "2",
    ]
    assert data.metrics == {"train/top_5": 1.0, "train/_./x": 2.0}


def test_a_parameter_changed_on_resume_stays(root: Path, run: Folder):
    run.train(range(1, 3))
    deliver(upload_for(root, run.path))
    run.settings(train={"lr": 0.5}, new=1)
    summary = deliver(upload_for(root, run.path))
    data = client(root).get_run(summary.run_id).data
    assert summary.delivered
    assert data.params == {
        "name": run.path.name,
        "train.lr": "0.001",
        "mixer.name": "agf",
        "new": "1",
    }


def test_a_resumed_run_is_the_same_run_with_each_step_once(root: Path, run: Folder):
    plan, store = upload_for(root, run.path), client(root)
    run.train(range(1, 21))
    first = deliver(plan)
    assert store.get_run(first.run_id).info.status == "KILLED"
    again = deliver(plan, final=False)
    assert (again.run_id, again.error) == (first.run_id, None)
    assert store.get_run(first.run_id).info.status == "RUNNING"
    run.train(range(11, 31), attempt=2)
    run.result()
    last = deliver(plan)
    assert last.run_id == first.run_id
    assert len(all_runs(store)) == 1
    assert store.get_run(last.run_id).info.status == "FINISHED"
    assert [step for step, _ in history(store, last.run_id, "train/loss")] == list(range(1, 31))


def test_a_failed_run_that_is_tried_again_runs_until_it_ends_anew(root: Path, run: Folder):
    plan, store = upload_for(root, run.path), client(root)
    run.train(range(1, 5))
    run.result("failed", reason="inf")
    run_id = deliver(plan).run_id
    assert store.get_run(run_id).info.status == "FAILED"
    deliver(plan, final=False)
    assert store.get_run(run_id).info.status == "FAILED"
    (run.path / RESULT).unlink()  # as each start does
    for step in (5, 6):
        run.train(range(step, step + 1), attempt=2)
        deliver(plan, final=False)
        assert store.get_run(run_id).info.status == "RUNNING"
    run.result("finished")
    deliver(plan, final=False)
    found = store.get_run(run_id)
    assert (found.info.status, found.data.tags["subquad.status"]) == ("FINISHED", "finished")


def test_a_store_that_does_not_answer_does_not_replace_the_one_that_did(root: Path, run: Folder):
    run.train(range(1, 3))
    first = deliver(upload_for(root, run.path))
    lost = deliver(upload_for(root, run.path, uri=f"http://127.0.0.1:{closed_port()}"))
    assert (lost.delivered, lost.run_id) == (False, "")
    assert deliver(upload_for(root, run.path)) == first


def test_a_second_store_gets_everything_and_the_first_keeps_its_run(
    root: Path, run: Folder, template: Path
):
    run.train(range(1, 3))
    first = deliver(upload_for(root, run.path))
    shutil.copy(template, root / "second.db")
    second = deliver(upload_for(root, run.path, uri=sqlite_uri(root / "second.db")))
    run.train(range(3, 5))
    assert deliver(upload_for(root, run.path)).run_id == first.run_id
    assert second.delivered
    other = client(sqlite_uri(root / "second.db"))
    assert [step for step, _ in history(other, second.run_id, "train/loss")] == [1, 2]
    assert [step for step, _ in history(client(root), first.run_id, "train/loss")] == [
        1,
        2,
        3,
        4,
    ]
    assert len(all_runs(client(root))) == 1


def test_a_database_that_was_moved_with_its_runs_is_recognised(root: Path, run: Folder):
    run.train(range(1, 3))
    first = deliver(upload_for(root, run.path))
    shutil.move(root / DATABASE, root / "moved.db")
    moved = deliver(upload_for(root, run.path, uri=sqlite_uri(root / "moved.db")))
    assert (moved.run_id, moved.delivered) == (first.run_id, True)
    steps = [
        step
        for step, _ in history(client(sqlite_uri(root / "moved.db")), moved.run_id, "train/loss")
    ]
    assert steps == [1, 2]


def test_one_that_was_killed_half_way_is_followed_by_one_that_sends_the_rest(
    root: Path, run: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mlflow.tracking._tracking_service.client.MAX_METRICS_PER_BATCH", 3)
    run.train(range(1, 21))
    calls = 0
    log_batch = SqlAlchemyStore.log_batch

    def failing(self, run_id, metrics, params, tags):
        nonlocal calls
        calls += bool(metrics)
        if calls == 5:
            raise OSError("killed")
        return log_batch(self, run_id, metrics, params, tags)

    monkeypatch.setattr(SqlAlchemyStore, "log_batch", failing)
    plan, store = upload_for(root, run.path), client(root)
    assert deliver(plan, final=False).error == "OSError: killed"
    [run_id] = [found.info.run_id for found in all_runs(store)]
    assert len(history(store, run_id, "train/loss")) == 6
    calls = 100
    run.train(range(11, 26), attempt=2)
    assert deliver(plan).delivered
    assert calls == 100 + math.ceil((14 + 5) * 2 / 3)
    for key in ("train/loss", "train/lr"):
        assert [step for step, _ in history(store, run_id, key)] == list(range(1, 26))


def test_a_run_its_user_deleted_is_made_again_whole(root: Path, run: Folder):
    run.train(range(1, 3))
    plan, store = upload_for(root, run.path), client(root)
    delivery = Importer(plan)
    first = delivery.look(final=False).run_id
    store.delete_run(first)
    run.train(range(3, 5))
    assert "must be in the 'active' state" in str(delivery.look(final=False).error)
    second = delivery.look(final=False).run_id
    assert first != second
    assert [step for step, _ in history(store, second, "train/loss")] == [1, 2, 3, 4]


def test_a_study_is_one_parent_with_a_child_for_each_cell_that_began(root: Path):
    study = root / "runs" / "demo" / "s1"
    cells = [Folder(study / "cells" / name) for name in ("one", "two", "three")]
    (study / "study.yaml").write_text("matrix: {seed: [0, 1, 2]}\n")
    plan, store = upload_for(root, study), client(root)
    cells[0].train(range(1, 3))
    cells[0].record(2, {"accuracy": 0.5}, kind="eval", split="validation")
    cells[0].result()
    cells[1].train(range(1, 3))
    first = deliver(plan, final=False)
    status = {run.info.run_name: run.info.status for run in all_runs(store)}
    assert status == {"demo/s1": "RUNNING", "one": "FINISHED", "two": "RUNNING"}
    assert deliver(plan).error is None
    status = {run.info.run_name: run.info.status for run in all_runs(store)}
    assert status == {"demo/s1": "KILLED", "one": "FINISHED", "two": "KILLED"}
    for cell in cells[1:]:
        cell.train(range(3, 5), attempt=2)
        cell.result()
    (study / "report.md").write_text("| mixer | accuracy |\n")
    last = deliver(plan)
    found = {run.info.run_name: run for run in all_runs(store)}
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    above = last.run_id
    assert (last.delivered, above) == (True, first.run_id)
    parents = {name: run.data.tags.get("mlflow.parentRunId") for name, run in found.items()}
    assert parents == {"demo/s1": None, **dict.fromkeys(("one", "two", "three"), above)}
    names = {artifact.path for artifact in store.list_artifacts(above)}
    assert names == {"study.yaml", "report.md"}
    (study / "report.md").write_text("| mixer | accuracy | rank |\n")
    assert deliver(plan).delivered
    again = Path(store.download_artifacts(above, "report.md"))
    assert again.read_text() == "| mixer | accuracy | rank |\n", (
        "a report that was written again is sent again"
    )
    assert found["one"].data.metrics["test/accuracy"] == 0.75


def test_one_cells_trouble_does_not_keep_the_others_back(root: Path):
    study = root / "runs" / "demo" / "s1"
    good, bad = Folder(study / "cells" / "b-good"), Folder(study / "cells" / "a-bad")
    (study / "study.yaml").write_text("matrix: {}\n")
    for cell in (good, bad):
        cell.train(range(1, 3))
        cell.result()
    (bad.path / "environment.json").mkdir()
    summary = deliver(upload_for(root, study))
    assert not summary.delivered
    assert str(summary.error).startswith("IsADirectoryError")
    assert {run.info.run_name: run.info.status for run in all_runs(client(root))}[
        "b-good"
    ] == "FINISHED"


def test_a_run_that_another_process_sends_is_left_alone(
    root: Path, run: Folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("subquad.tracking.importing._LOCK_SECONDS", 0.05)
    run.train(range(1, 3))
    with FileLock(str(run.path / ".mlflow.lock")):
        summary = deliver(upload_for(root, run.path))
    assert not summary.delivered
    assert summary.error == f"Busy: {run.path}: another process is sending this run"


def test_a_deleted_experiment_is_named(root: Path, run: Folder):
    store = client(root)
    store.delete_experiment(store.create_experiment("demo"))
    summary = deliver(upload_for(root, run.path))
    assert re.fullmatch(
        r"MlflowException: The experiment \d+ must be in the 'active' state\. Current state is "
        r"deleted\.",
        str(summary.error),
    )


def test_a_database_whose_making_was_interrupted_is_made_anew(tmp_path: Path):
    (tmp_path / "odd %20#name").mkdir()
    database = tmp_path / "odd %20#name" / DATABASE
    database.with_name(f".{DATABASE}.0123456789abcdef.tmp").write_bytes(b"half a database")
    run = Folder(database.parent / "runs" / "demo" / "one")
    run.train(range(1, 3))
    run_id = deliver(upload_for(database.parent, run.path)).run_id
    place = client(database.parent).get_run(run_id).info.artifact_uri
    assert place == (database.parent / "mlartifacts" / run_id / "artifacts").as_uri()
    assert sorted(path.name for path in database.parent.glob("*mlruns*")) == [
        DATABASE,
        f"{DATABASE}.lock",
    ]


def test_a_dead_server_costs_nothing_and_sync_delivers_later(
    root: Path, run: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    dead = f"http://me:hunter2@127.0.0.1:{closed_port()}"
    run.settings(note=dead.replace("hunter2", "***"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    before = dict(os.environ)
    publisher = open_publisher(Tracking(), run.path, name="demo")
    publisher.start()
    run.train(range(1, 31))
    run.result()
    lost = publisher.close(timeout=60)
    assert dict(os.environ) == before
    assert (lost.delivered, lost.run_id) == (False, "")
    assert lost.uri == dead.replace("me:hunter2", "***")
    assert "Failed to establish a new connection" in str(lost.error)
    assert "hunter2" not in str(lost)
    monkeypatch.chdir(root)
    assert main(["sync", str(run.path), "--uri", f"sqlite:///{DATABASE}"]) == 0
    assert capsys.readouterr().out == f"{run.path}: delivered to {sqlite_uri(root / DATABASE)}\n"
    store = client(root)
    [found] = all_runs(store)
    assert (found.info.run_name, found.info.status) == (f"demo/{run.path.name}", "FINISHED")
    assert [step for step, _ in history(store, found.info.run_id, "train/loss")] == list(
        range(1, 31)
    )
    assert found.data.params["note"] == dead.replace("me:hunter2", "***")
    written = [path for path in root.rglob("*") if path.is_file()]
    assert [path for path in written if b"hunter2" in path.read_bytes()] == []


def test_passwords_in_the_settings_do_not_reach_the_artefacts(root: Path, run: Folder):
    (run.path / "experiment.yaml").write_text("tracking: {uri: 'https://me:hunter2@host'}\n")
    run.train(range(1, 2))
    summary = deliver(upload_for(root, run.path))
    artifact = root / "mlartifacts" / summary.run_id / "artifacts" / "experiment.yaml"
    assert artifact.read_text() == "tracking: {uri: 'https://***@host'}\n"


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.extended)])
def test_several_drivers_may_open_a_fresh_database_at_once(tmp_path: Path, count: int):
    publishers, folders = [], []
    for index in range(count):
        folder = Folder(tmp_path / "runs" / "demo" / f"run{index}")
        folder.train(range(1, 6))
        folder.result()
        publishers.append(open_publisher(Tracking(), folder.path, name="demo"))
        folders.append(folder)
    for publisher in publishers:
        publisher.start()
    summaries = [publisher.close(timeout=120) for publisher in publishers]
    assert [summary.error for summary in summaries] == [None] * count
    assert all(summary.delivered for summary in summaries)
    store = client(tmp_path)
    assert len({run.info.experiment_id for run in all_runs(store)}) == 1
    assert sorted(str(run.info.run_name) for run in all_runs(store)) == [
        f"demo/{folder.path.name}" for folder in folders
    ]


def test_a_driver_that_is_killed_leaves_nothing_unsent_and_no_process(root: Path, run: Folder):
    run.train(range(1, 6))
    code = (
        "import os, sys; from pathlib import Path; from subquad.experiment.schema import Tracking;"
        "from subquad.tracking.publisher import open_publisher;"
        "one = open_publisher(Tracking(), Path(sys.argv[1]), name='demo');"
        "one.start(); print(one._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    driver = subprocess.run(
        [sys.executable, "-c", code, str(run.path)], capture_output=True, text=True
    )
    assert driver.returncode == -signal.SIGKILL
    assert psutil.wait_procs([psutil.Process(int(driver.stdout))], timeout=90)[1] == []
    [found] = all_runs(client(root))
    assert found.info.status == "KILLED"
    assert len(client(root).get_metric_history(found.info.run_id, "train/loss")) == 5


def test_over_a_server_that_dies_and_comes_back_nothing_is_lost(
    root: Path, run: Folder, tmp_path: Path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
    with serving(root) as (address, password, _):
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        plan = Publisher(uri=address, experiment="demo", folder=run.path)
        delivery = Importer(plan)
        run.train(range(1, 6))
        run.record(5, {"grad_norm": math.nan, "other": math.inf})
        assert delivery.look(final=False).error is None
    run.train(range(6, 11))
    assert address.removeprefix("http://127.0.0.1:") in str(delivery.look(final=False).error)
    run.result()
    with serving(root, int(address.rsplit(":", 1)[1])) as (_, password, _):
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        summary = delivery.look(final=True)
        store = client(address)
        run_id = summary.run_id
        assert (summary.delivered, store.get_run(run_id).info.status) == (True, "FINISHED")
        steps = [step for step, _ in history(store, run_id, "train/loss")]
        assert steps == list(range(1, 11))
        for name in ("grad_norm", "other"):
            assert len(store.get_metric_history(run_id, f"train/{name}")) == 1
        assert {artifact.path for artifact in store.list_artifacts(run_id)} >= {
            "metrics.jsonl",
            "experiment.yaml",
        }
        target = store.download_artifacts(run_id, "metrics.jsonl", str(tmp_path / "download"))
        assert Path(target).read_bytes() == (run.path / METRICS).read_bytes()
        assert sync(run.path).delivered
