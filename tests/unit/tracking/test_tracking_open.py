"""Opening a publisher: when there is none, what is imported, what is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from result_file import ended

from subquad.cli.main import main
from subquad.cli.tracking import sync_command
from subquad.errors import ConfigError, RunError, UserError
from subquad.experiment.schema import Tracking
from subquad.record.files import write_json
from subquad.tracking import publisher as publisher_module
from subquad.tracking.mirror import key_of, whole_of
from subquad.tracking.publisher import Publisher, Summary, open_publisher, sync


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("subquad.tracking.publisher.find_spec", lambda name: None)
    monkeypatch.setattr("subquad.cli.tracking.find_spec", lambda name: None)


def opened(tracking: Tracking, folder: Path):
    return open_publisher(tracking, folder, name="demo")


def test_tracking_imports_nothing_heavy_and_changes_no_variable(run_folder):
    code = (
        "import os, sys; before = dict(os.environ);"
        "import subquad.cli.tracking; from pathlib import Path;"
        "from subquad.tracking.publisher import open_publisher; from "
        "subquad.execution.system import system_metrics;"
        "from subquad.experiment.schema import Tracking; system_metrics();"
        "p = open_publisher(Tracking(), Path(sys.argv[1]), name='demo');"
        "p.start(); p.close(timeout=0.01);"
        "print([m for m in ('mlflow', 'matplotlib', 'torch', 'ray', 'sqlalchemy') "
        "if m in sys.modules]);"
        "print(dict(os.environ) == before)"
    )
    command = [sys.executable, "-c", code, str(run_folder.path)]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\nTrue\n"
    )


def test_tracking_that_is_off_does_nothing(run_folder):
    publisher = opened(Tracking(uri="off"), run_folder.path)
    publisher.start()
    assert publisher.uri == ""
    assert publisher.close() == Summary(delivered=True)


def test_without_mlflow_one_line_says_so(
    run_folder, without_mlflow, capsys: pytest.CaptureFixture[str]
):
    assert opened(Tracking(), run_folder.path).uri == ""
    assert capsys.readouterr().err == (
        "MLflow is not installed: pip install 'subquad[mlflow]' (metrics stay in "
        "the run directory)\n"
    )


def test_without_mlflow_an_address_is_refused(run_folder, without_mlflow):
    with pytest.raises(
        UserError,
        match=r"^tracking\.uri is given, but MLflow is not installed: .*, or set "
        r"tracking\.uri=off$",
    ):
        opened(Tracking(uri="http://host"), run_folder.path)
    with pytest.raises(
        UserError, match=r"^subquad sync needs MLflow: pip install 'subquad\[mlflow\]'$"
    ):
        sync(run_folder.path)


def test_a_bad_address_is_refused_before_anything_starts(run_folder):
    with pytest.raises(ConfigError, match=r"^tracking\.uri: 'ftp://host' is no MLflow store"):
        opened(Tracking(uri="ftp://host"), run_folder.path)


def test_what_is_to_be_sent_is_absolute_and_is_found_again_from_the_folder(
    run_folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(run_folder.path.parent)
    publisher = opened(Tracking(experiment="mine"), Path(run_folder.path.name))
    root = run_folder.path.parents[2]
    assert (publisher.uri, publisher.experiment) == (f"sqlite:///{root}/mlruns.db", "mine")
    assert publisher.folder == run_folder.path


def test_a_password_is_in_no_file_and_no_command_line(run_folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    started = []

    def popen(command, **more):
        started.append((command, more))
        raise OSError("no memory")

    monkeypatch.setattr(publisher_module.subprocess, "Popen", popen)
    opened(Tracking(), run_folder.path).close()
    [(command, more)] = started
    assert "hunter2" not in " ".join(command)
    assert more["env"]["MLFLOW_TRACKING_URI"] == "http://me:hunter2@127.0.0.1:9"
    written = [path for path in run_folder.path.rglob("*") if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in written)


def child_that_runs(code: str, started: list[subprocess.Popen[str]]):
    """In place of the process that sends: one that runs this code; the first one is idle."""

    def start(_):
        idle = not started
        child = subprocess.Popen(
            [sys.executable, "-c", f"idle = {idle}\n{code}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return child

    return start


def test_a_process_that_cannot_start_does_not_hurt_training(
    run_folder, monkeypatch: pytest.MonkeyPatch
):
    def refused(*_, **__):
        raise OSError("no memory")

    monkeypatch.setattr(Publisher, "_start", refused)
    publisher = opened(Tracking(), run_folder.path)
    publisher.start()
    summary = publisher.close()
    assert (summary.delivered, summary.error) == (False, "the process that sends: no memory")
    assert str(summary.uri).endswith("mlruns.db")


def test_a_process_that_breaks_off_is_reported(run_folder, monkeypatch: pytest.MonkeyPatch):
    code = "import sys; sys.stdin.read(); sys.exit(3)"
    monkeypatch.setattr(Publisher, "_start", child_that_runs(code, []))
    summary = opened(Tracking(), run_folder.path).close()
    assert summary.error == "the process that sends ended (3)"


def test_close_is_bounded_and_leaves_no_process(run_folder, monkeypatch: pytest.MonkeyPatch):
    children: list[subprocess.Popen[str]] = []
    code = "import signal; signal.pause()"
    monkeypatch.setattr(Publisher, "_start", child_that_runs(code, children))
    monkeypatch.setattr(publisher_module, "_IDLE_SECONDS", 0.1)
    publisher = opened(Tracking(), run_folder.path)
    publisher.start()
    summary = publisher.close(timeout=0.2)
    assert (summary.delivered, summary.error) == (False, "not all was sent within 0.2 s")
    assert [child.returncode for child in children] == [-9, -9]


@pytest.mark.parametrize("first", ["signal.pause()", "sys.exit(-14)"])
def test_where_the_idle_process_got_no_time_or_was_stuck_another_one_sends(
    run_folder, monkeypatch: pytest.MonkeyPatch, first: str
):
    answer = Summary(delivered=True, uri="sqlite:////x", run_id="r")
    code = (
        "import signal, sys; sys.stdin.read()\n"
        f"if idle: {first}\n"
        f"print({answer.model_dump_json()!r})"
    )
    children: list[subprocess.Popen[str]] = []
    monkeypatch.setattr(Publisher, "_start", child_that_runs(code, children))
    monkeypatch.setattr(publisher_module, "_IDLE_SECONDS", 0.1)
    publisher = opened(Tracking(), run_folder.path)
    publisher.start()
    assert publisher.close().run_id == "r"
    assert len(children) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tracking: {uri: 5}", r"tracking\.uri: got 5, must be text"),
        ("tracking: [1]", r"tracking: got \[1\], must be a mapping"),
        ("tracking: {uri: 'http://me:hunter2@h'}", r"tracking\.uri must not hold a user name"),
    ],
)
def test_an_experiment_that_is_none_is_refused_in_one_line(run_folder, text: str, message: str):
    (run_folder.path / "experiment.yaml").write_text(f"{text}\n")
    with pytest.raises(ConfigError, match=message) as refused:
        sync(run_folder.path)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_sync_says_where_it_could_not_send(run_folder, monkeypatch: pytest.MonkeyPatch):
    code = "import signal; signal.pause()"
    monkeypatch.setattr(Publisher, "_start", child_that_runs(code, []))
    summary = sync(run_folder.path, timeout=0.1)
    assert (summary.delivered, summary.error) == (False, "not all was sent within 0.1 s")
    assert str(summary.uri).endswith("mlruns.db")


@pytest.fixture
def unsent(monkeypatch: pytest.MonkeyPatch):
    """`sync` returns what it would send."""
    monkeypatch.setattr(Publisher, "close", lambda self, timeout: self)


def test_sync_takes_what_it_needs_from_the_folder(run_folder, unsent):
    publisher: Any = sync(run_folder.path)
    root = run_folder.path.parents[2]
    assert (publisher.uri, publisher.experiment, publisher.folder) == (
        f"sqlite:///{root}/mlruns.db",
        "demo",
        run_folder.path,
    )


def test_sync_of_a_part_sends_the_whole(tmp_path: Path, make_run, unsent):
    study = tmp_path / "runs" / "demo" / "s1"
    cell = make_run(study / "cells" / "one")
    (study / "study.yaml").write_text("matrix: {}\n")
    assert whole_of(cell.path) == whole_of(study) == study
    assert sync(cell.path) == sync(study)
    search = tmp_path / "runs" / "demo-search" / "s1"
    trial, final = search / "trials" / "agf" / "00000", search / "final"
    for path in (search / "search.yaml", trial / "trial.json", final / "study.yaml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    last = make_run(final / "cells" / "one").path
    for part in (trial, search, final, last):
        assert whole_of(part) == search


def test_what_finds_a_run_again_goes_with_its_folder(tmp_path: Path, make_run):
    first = make_run(tmp_path / "runs" / "demo" / "20260101-000000-aa").path
    write_json(first / "identity.json", ended("", digest="d"))
    key = key_of(first)
    assert first.rename(tmp_path / first.name) == tmp_path / first.name
    assert key_of(tmp_path / first.name) == key
    write_json(tmp_path / first.name / "identity.json", ended("", digest="e"))
    assert key_of(tmp_path / first.name) != key


def test_sync_of_something_else_is_refused(tmp_path: Path):
    with pytest.raises(
        RunError, match=r"neither a run \(no experiment\.yaml\) nor a study \(no study\.yaml\)$"
    ):
        sync(tmp_path)


@pytest.mark.parametrize(("delivered", "code"), [(True, 0), (False, 1)])
def test_sync_says_what_came_of_it(
    run_folder, monkeypatch: pytest.MonkeyPatch, delivered: bool, code: int
):
    summary = Summary(
        delivered=delivered,
        uri="sqlite:////x",
        run_id="r",
        error=None if delivered else "OSError: x",
    )
    monkeypatch.setattr("subquad.cli.tracking.sync", lambda folder, *, uri, timeout: summary)
    outcome = CliRunner().invoke(sync_command, [str(run_folder.path)], standalone_mode=False)
    assert outcome.return_value == code
    expected = (
        "delivered to sqlite:////x" if delivered else "not delivered to sqlite:////x: OSError: x"
    )
    assert outcome.output == f"{run_folder.path}: {expected}\n"


def test_ui_without_a_database_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["ui", "--root", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"subquad: no mlruns.db in {tmp_path}: make a run there first (`subquad "
        "train RECIPE`) or give --root\n"
    )


def test_ui_without_mlflow_names_the_extra(
    tmp_path: Path, without_mlflow, capsys: pytest.CaptureFixture[str]
):
    assert main(["ui", "--root", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == "subquad: subquad ui needs MLflow: pip install 'subquad[mlflow]'\n"
    )
