"""Metrics and secrets go only to an address that the environment, a command line or the user's
configuration gave.
"""

from __future__ import annotations

import http.server
import json
import os
import runpy
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_run import SMALL

from subquad.cli.main import main
from subquad.record import trust
from subquad.record.trust import given_addresses, remember_address
from subquad.tracking import importing
from subquad.tracking.publisher import Summary

CANARY = "c4n4rytoken"


@pytest.fixture
def stranger() -> Iterator[SimpleNamespace]:
    """A server that answers everything and keeps what it was asked."""
    state = SimpleNamespace(asked=[])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append((self.path, dict(self.headers)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, format, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch) -> Path:
    """A user with a secret in the environment, a configuration folder of its own, and a working
    directory.
    """
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", CANARY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(trust, "_given", [])
    monkeypatch.setattr(trust, "_here", {})
    return tmp_path / "config" / "subquad" / "trusted.json"


def experiment(uri: str) -> str:
    Path("theirs.yaml").write_text(SMALL.replace("uri: off", f"uri: '{uri}'"))
    return "theirs.yaml"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "an address that you have not given yourself" in errors
    return errors


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--local"],
        ["train", "--dry-run"],
        ["tune", "--space", "auto", "--local"],
        ["submit", "train"],
        ["cluster", "render", "slurm"],
        ["cluster", "render", "kuberay", "resources.storage=s3://b/x"],
    ],
)
def test_an_experiments_address_gets_nothing(stranger, capsys, words):
    verb = 2 if words[0] == "submit" else 3 if words[0] == "cluster" else 1
    errors = refused([*words[:verb], experiment(stranger.url), *words[verb:]], capsys)
    assert f"write tracking.uri={stranger.url} once" in errors
    assert stranger.asked == []
    assert not Path("runs").exists()


def test_a_folders_address_gets_nothing(stranger, capsys):
    run = Path("runs/small/20260101-000000-aa")
    run.mkdir(parents=True)
    (run / "experiment.yaml").write_text(SMALL.replace("uri: off", f"uri: '{stranger.url}'"))
    assert f"write --uri {stranger.url} once" in refused(["sync", str(run)], capsys)
    assert stranger.asked == []


def test_a_folders_database_elsewhere_is_not_written(tmp_path, capsys):
    run = Path("runs/small/20260101-000000-aa")
    run.mkdir(parents=True)
    elsewhere = tmp_path / "home" / "important.db"
    (run / "experiment.yaml").write_text(SMALL.replace("uri: off", f"uri: 'sqlite:///{elsewhere}'"))
    refused(["sync", str(run)], capsys)
    Path("link.db").symlink_to(elsewhere)
    (run / "experiment.yaml").write_text(SMALL.replace("uri: off", "uri: 'sqlite:///link.db'"))
    refused(["sync", str(run)], capsys)
    assert not elsewhere.parent.exists()


def test_what_the_command_line_or_the_environment_gives_is_used_and_remembered(
    stranger, capsys, own, monkeypatch
):
    target = experiment(stranger.url)
    assert main(["train", target, f"tracking.uri={stranger.url}", "--dry-run"]) == 0
    assert json.loads(own.read_text()) == {"addresses": [stranger.url]}
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert main(["train", target, "--dry-run"]) == 0
    own.unlink()
    monkeypatch.setattr(trust, "_here", {})
    monkeypatch.setattr(trust, "_given", [])
    refused(["train", target, "--dry-run"], capsys)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{stranger.url}/")
    assert main(["train", target, "--dry-run"]) == 0


def test_a_longer_address_of_the_command_line_gives_no_shorter_one(capsys):
    target = experiment("http://lab")
    refused(["train", target, "tracking.experiment=http://lab.example.org", "--dry-run"], capsys)


def test_a_memory_that_others_may_write_is_not_believed(own, monkeypatch):
    remember_address("http://lab")
    monkeypatch.setattr(trust, "_here", {})
    assert given_addresses() == ["http://lab"]
    own.chmod(0o666)
    assert given_addresses() == []
    own.chmod(0o600)
    own.write_text("[")
    assert given_addresses() == []


def test_without_a_configuration_folder_only_this_process_remembers(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    remember_address("http://lab")
    assert given_addresses() == ["http://lab"]
    monkeypatch.setattr(trust, "_here", {})
    assert given_addresses() == []


def test_a_kuberay_job_sends_to_the_address_that_was_checked(capsys):
    uri = "http://mlflow.lab:5000"
    words = [
        "cluster",
        "render",
        "kuberay",
        experiment(uri),
        "resources.storage=s3://b/x",
        f"tracking.uri={uri}",
    ]
    assert main(words) == 0
    assert f'- {{name: MLFLOW_TRACKING_URI, value: "{uri}"}}' in capsys.readouterr().out
    assert os.environ.get("MLFLOW_TRACKING_URI") is None


@pytest.mark.parametrize("name", ["experiment.yaml", "search.yaml"])
@pytest.mark.parametrize(
    "text",
    ["a: &a [x]\nb: [*a, *a]\n", "{a: " * 900, "a: !!python/name:os.system x\n"],
    ids=range(3),
)
def test_sync_reads_yaml_as_strictly_as_report(tmp_path, capsys, name: str, text: str):
    run = tmp_path / "work" / "runs" / "demo" / "one"
    run.mkdir(parents=True)
    (run / "experiment.yaml").write_text("name: demo\n")
    (run / name).write_text(text)
    assert main(["sync", str(run)]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert name in errors


BUSY = {"in Python": "while True: pass", "in C": "10 ** 10**9", "asleep": "time.sleep(900)"}


@pytest.mark.ci
@pytest.mark.parametrize("work", BUSY.values(), ids=BUSY)
def test_what_sends_ends_whatever_it_is_at(tmp_path, work: str):
    """A driver that is killed leaves no process, and so no lock."""
    sending = (
        "import time\nfrom pathlib import Path\nfrom subquad.tracking import importing\n"
        f"def bring(*_):\n    {work}\n"
        "importing.Importer._bring = bring\nimporting.Importer._connect = lambda self: None\n"
        "importing._STUCK_SECONDS = 1\n"
        f"importing.follow(importing.Upload(Path({str(tmp_path)!r}), 'sqlite:///x.db', 'x'))\n"
    )
    command = [sys.executable, "-c", sending]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGALRM


def test_the_process_beside_training_is_idle_for_the_system(tmp_path):
    code = (
        "import os, runpy\nfrom subquad.tracking import importing, publisher\n"
        "says = lambda upload: publisher.Summary(delivered=os.sched_getscheduler(0) == 5)\n"
        "importing.follow = says\n"
        "runpy.run_module('subquad.tracking', run_name='__main__')\n"
    )
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "sqlite:///x.db"}
    for words, is_idle in {("idle",): True, (): False}.items():
        command = [sys.executable, "-c", code, str(tmp_path), "demo", *words]
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            env=environment,
        )
        assert Summary.model_validate_json(said.stdout).delivered is is_idle


def test_nothing_is_done_before_there_is_a_record(tmp_path, monkeypatch, capsys):
    """The first steps have the machine for themselves."""
    run = tmp_path / "cells" / "one"
    asked = []

    def waited(*_):
        asked.append(run.exists())
        if len(asked) == 3:
            run.mkdir(parents=True)
            (run / "metrics.jsonl").touch()
        return [], [], []

    def follow(upload):
        assert len(asked) == 3
        return Summary(delivered=True, uri=upload.uri)

    monkeypatch.setattr("select.select", waited)
    monkeypatch.setattr(importing, "follow", follow)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///x.db")
    monkeypatch.setattr(sys, "argv", ["tracking", str(tmp_path), "demo"])
    monkeypatch.delitem(sys.modules, "subquad.tracking.__main__", raising=False)
    runpy.run_module("subquad.tracking", run_name="__main__")
    assert asked == [False] * 3
    assert Summary.model_validate_json(capsys.readouterr().out).uri == "sqlite:///x.db"
