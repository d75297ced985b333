"""Opening a publisher: when there is none, what is imported, what is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from subquad.cli.main import main
from subquad.cli.tracking import sync_command
from subquad.errors import ConfigError, RunError, UserError
from subquad.experiment.schema import Tracking
from subquad.runs import write_json
from subquad.tracking import publisher as publisher_module
from subquad.tracking.folders import parts_of
from subquad.tracking.publisher import open_publisher, sync, upload_of
from subquad.tracking.state import Summary, SyncState


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
        "subquad.drivers.system import system_metrics;"
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
    assert publisher.upload is None
    assert publisher.close() == Summary(delivered=True)


def test_without_mlflow_one_line_says_so(
    run_folder, without_mlflow, capsys: pytest.CaptureFixture[str]
):
    assert opened(Tracking(), run_folder.path).upload is None
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
    with pytest.raises(ConfigError, match=r"^tracking\.uri: 'ftp' is no MLflow store"):
        opened(Tracking(uri="ftp://host"), run_folder.path)


def test_what_is_to_be_sent_is_absolute_and_is_found_again_from_the_folder(
    run_folder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(run_folder.path.parent)
    publisher = opened(Tracking(experiment="mine"), Path(run_folder.path.name))
    upload = publisher.upload
    assert upload is not None
    root = run_folder.path.parents[2]
    assert (upload.uri, upload.experiment) == (f"sqlite:///{root}/mlruns.db", "mine")
    assert upload.folder == run_folder.path
    monkeypatch.setattr(publisher_module, "_start_child", lambda *_: None)
    assert publisher.close().pending == 0
    assert upload_of(run_folder.path, None) == upload


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
    assert "hunter2" not in (run_folder.path / "mlflow.json").read_text()
    found = SyncState.load(run_folder.path)
    assert found is not None
    assert found.uri == "http://***@127.0.0.1:9"


def test_a_process_that_cannot_start_does_not_hurt_training(
    run_folder, monkeypatch: pytest.MonkeyPatch
):
    def refused(*_):
        raise OSError("no memory")

    monkeypatch.setattr(publisher_module, "_start_child", refused)
    run_folder.train(range(1, 4))
    publisher = opened(Tracking(), run_folder.path)
    publisher.start()
    summary = publisher.close()
    assert (summary.delivered, summary.pending) == (False, 3)
    assert summary.error == "the process that sends to MLflow did not start: no memory"
    assert publisher.close() is summary


def test_a_process_that_breaks_off_is_reported(run_folder, monkeypatch: pytest.MonkeyPatch):
    def broken(_upload, _rest, errors):
        code = "import sys; sys.stdin.read(); print('why', file=sys.stderr); sys.exit(3)"
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    monkeypatch.setattr(publisher_module, "_start_child", broken)
    summary = opened(Tracking(), run_folder.path).close()
    assert summary.error == "the process that sends ended (3): why"


def test_close_is_bounded_and_leaves_no_process(run_folder, monkeypatch: pytest.MonkeyPatch):
    children = []

    def stuck(_upload, _rest, errors):
        code = "import signal; signal.pause()"
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        return child

    monkeypatch.setattr(publisher_module, "_start_child", stuck)
    run_folder.train(range(1, 3))
    summary = opened(Tracking(), run_folder.path).close(timeout=0.2)
    assert (summary.delivered, summary.pending, summary.error) == (
        False,
        2,
        "not all was sent within 0.2 s",
    )
    assert children[0].returncode == -9


def test_sync_takes_what_it_needs_from_the_folder(run_folder):
    upload = upload_of(run_folder.path, None)
    root = run_folder.path.parents[2]
    assert (upload.uri, upload.experiment, upload.folder) == (
        f"sqlite:///{root}/mlruns.db",
        "demo",
        run_folder.path,
    )


def test_sync_of_a_part_sends_the_whole(tmp_path: Path, make_run):
    study = tmp_path / "runs" / "demo" / "s1"
    cell = make_run(study / "cells" / "one")
    (study / "study.yaml").write_text("matrix: {}\n")
    assert parts_of(cell.path) == parts_of(study) == [study]
    assert upload_of(study, None).uri == f"sqlite:///{tmp_path}/mlruns.db"
    search = tmp_path / "runs" / "demo-search" / "s1"
    trial, final = search / "trials" / "agf" / "00000", search / "final"
    for path in (search / "search.yaml", trial / "trial.json", final / "study.yaml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert parts_of(trial) == parts_of(search) == [search, final]
    assert parts_of(final) == [final]


@pytest.mark.parametrize("known", ["environment", "option"])
def test_a_password_comes_from_the_user_again(
    run_folder, known: str, monkeypatch: pytest.MonkeyPatch
):
    secret = "https://me:hunter2@host"
    saved = {"uri": "https://***@host", "experiment": "e", "label": "l", "key": "k"}
    write_json(run_folder.path / "mlflow.json", saved)
    with pytest.raises(
        ConfigError,
        match=r"^https://\*\*\*@host: this address had a user and a password, .* give "
        r"--uri or set MLFLOW_",
    ):
        upload_of(run_folder.path, None)
    if known == "environment":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    plan = upload_of(run_folder.path, secret if known == "option" else None)
    assert plan.uri == secret


def test_following_takes_one_folder(run_folder):
    words = [str(run_folder.path), str(run_folder.path), "--follow"]
    outcome = CliRunner().invoke(sync_command, words)
    assert (outcome.exit_code, "--follow takes one folder" in outcome.output) == (2, True)


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
        pending=0 if delivered else 4,
        uri="sqlite:////x",
        run_ids=("r",),
        error=None if delivered else "StoreDown: x",
    )
    monkeypatch.setattr("subquad.cli.tracking.sync", lambda folder, *, uri, timeout: summary)
    outcome = CliRunner().invoke(sync_command, [str(run_folder.path)], standalone_mode=False)
    assert outcome.return_value == code
    expected = (
        "delivered to sqlite:////x (1 run)"
        if delivered
        else "not delivered to sqlite:////x, 4 records left: StoreDown: x"
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
