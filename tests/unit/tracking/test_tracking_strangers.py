"""Metrics and secrets go only to an address that the environment, a command line or the user's
configuration gave.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from small_run import SMALL

from subquad import trust
from subquad.cli.main import main
from subquad.trust import given_addresses, remember_address

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
    (run / "experiment.yaml").write_text(SMALL)
    tracked = {"uri": stranger.url, "experiment": "e", "key": "k", "run_id": "r"}
    from subquad.runs import write_json
    from subquad.tracking.state import SyncState

    write_json(run / "mlflow.json", tracked)
    assert SyncState.load(run).uri == stranger.url
    refused(["sync", str(run)], capsys)
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
@pytest.mark.parametrize("end", ["killed", "closes"])
def test_what_sends_ends_with_its_driver(tmp_path, work: str, end: str):
    """A driver that is killed leaves no process, whatever that is at, and so no lock."""
    sending = (
        "import time\nfrom subquad.tracking import sending, state\n"
        f"def look(self, final):\n    {work}\n"
        "sending.Sending.__init__ = lambda self, upload: None\n"
        "sending.Sending.look = look\n"
        "sending.follow(state.Upload(None, 'sqlite:///x.db', 'x'), rest=4)\n"
    )
    driving = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {sending!r}], stdin=-1, "
        "stdout=-1, start_new_session=True)\n"
        f"{'child.stdin.close()' if end == 'closes' else 'pass'}\n"
        f"print(child.pid, flush=True)\ntime.sleep(6)\nos.kill(os.getpid(), 9)\n"
    )
    words = [sys.executable, "-c", driving]
    driver = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert driver.returncode == -signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(driver.stdout)).wait(timeout=20)
