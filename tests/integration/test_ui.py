"""`subquad ui`: MLflow's own server behind a password of its start, over databases of strangers and
beside pages of other addresses.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from subquad.cli.main import main
from subquad.tracking.address import ARTIFACTS, DATABASE, sqlite_uri
from subquad.tracking.mlflow import Store
from subquad.tracking.publisher import Publisher
from subquad.tracking.server import USER, newest_page, serving

API = "/api/2.0/mlflow"
SECRET = b"the secret of a file outside"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Pages:
    """A server over a folder whose database names places outside."""

    address: str
    password: str
    process: psutil.Process
    root: Path
    outside: Path
    listener: socket.socket
    runs: dict[str, str]

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        *,
        password: str | None = "",
        **headers: str,
    ) -> Answer:
        """Ask as this user, unless another password is given, or None for none."""
        if password is not None:
            user = f"{USER}:{password or self.password}".encode()
            headers |= {"Authorization": f"Basic {base64.b64encode(user).decode()}"}
        if isinstance(body, dict):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        server = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=60)
        try:
            server.request(method, path, body, headers)  # pyright: ignore[reportArgumentType]
            got = server.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            server.close()

    def experiments(self) -> set[str]:
        found = self.ask(f"{API}/experiments/search?max_results=100").body
        return {experiment["name"] for experiment in json.loads(found)["experiments"]}

    def state(self) -> dict[str, bytes]:
        """What lies outside, links aside."""
        return {path.name: path.read_bytes() for path in self.outside.iterdir()}

    def called(self) -> bool:
        """Whether somebody came to the foreign address."""
        try:
            self.listener.accept()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    root, outside = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_bytes(SECRET)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        foreign = f"127.0.0.1:{listener.getsockname()[1]}"
        runs = strangers_database(root, outside, foreign)
        with serving(root) as (address, password, process):
            of_it = psutil.Process(process.pid)
            yield Pages(address, password, of_it, root, outside, listener, runs)


def strangers_database(root: Path, outside: Path, foreign: str) -> dict[str, str]:
    """A run of ours below `root` with the artefact note.txt, and runs that name other places."""
    uri = sqlite_uri(root / DATABASE)
    Store(Publisher(root / "one", uri, "demo"))
    store = MlflowClient(uri)
    demo = store.get_experiment_by_name("demo").experiment_id
    runs = {"own": store.create_run(demo).info.run_id}
    store.log_text(runs["own"], "of ours", "note.txt")
    below = Path(store.get_run(runs["own"]).info.artifact_uri.removeprefix("file://"))
    assert below.is_relative_to(root)
    (below / "link").symlink_to(outside)
    (root / "aside").symlink_to(outside)
    store.create_registered_model("model")
    places = {
        "file": outside.as_uri(),
        "plain": str(outside),
        "up": f"{root.as_uri()}/../{outside.name}",
        "link": f"{root.as_uri()}/aside",
        "http": f"http://{foreign}/x",
        "s3": f"s3://bucket/x?endpoint={foreign}",
        "ftp": f"ftp://{foreign}/x",
        "models": "models:/model/1",
    }
    for name in places:
        runs[name] = store.create_run(demo).info.run_id
    with sqlite3.connect(root / DATABASE) as database:
        database.executemany(
            "UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?",
            [(place, runs[name]) for name, place in places.items()],
        )
        database.execute(
            "INSERT INTO model_versions (name, version, source, storage_location, current_stage)"
            " VALUES ('model', 1, ?, ?, 'None')",
            (places["file"], places["file"]),
        )
        database.execute(
            "INSERT INTO logged_models (model_id, experiment_id, name, artifact_location,"
            " creation_timestamp_ms, last_updated_timestamp_ms, status, lifecycle_stage)"
            " VALUES ('m-theirs', ?, 'theirs', ?, 1, 1, 2, 'active')",
            (demo, places["file"]),
        )
    database.close()
    return runs


CLOSED = [
    "/",
    "/login",
    f"{API}/experiments/search?max_results=1",
    "/ajax-api/2.0/mlflow/experiments/search?max_results=1",
    "/get-artifact?path=x&run_uuid=y",
    "/api/2.0/mlflow-artifacts/artifacts?path=.",
    "/api/2.0/mlflow/users/list",
    "/ajax-api/3.0/mlflow/assistant/config",
    "/ajax-api/3.0/jobs/x",
    "/graphql",
    "/version",
    "/signup",
    "/docs",
]


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("password", [None, "0" * 24])
def test_without_the_password_nothing_is_shown(pages: Pages, path: str, password: str | None):
    answer = pages.ask(path, password=password)
    assert answer.status == 401
    assert b"demo" not in answer.body


def test_without_the_password_nothing_is_made(pages: Pages):
    made = pages.ask(f"{API}/experiments/create", "POST", {"name": "theirs"}, password=None)
    sent = pages.ask("/v1/traces", "POST", b"x", password=None)
    assert (made.status, sent.status) == (401, 401)
    assert "theirs" not in pages.experiments()


FOREIGN = [
    "http://127.0.0.1:1",
    "http://localhost:{port}",
    "http://[::1]:{port}",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1",
    "http://evil.example",
    "null",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_pages_of_other_addresses_neither_read_nor_post(pages: Pages, origin: str):
    """A browser sends the password with what a page of another port asks for."""
    other = origin.format(port=pages.address.rpartition(":")[2])
    make, put = f"{API}/experiments/create", "/api/2.0/mlflow-artifacts/artifacts/theirs.txt"
    upload = f"/ajax-api/2.0/mlflow/upload-artifact?run_uuid={pages.runs['own']}&path=theirs.txt"
    plain = {"Content-Type": "text/plain"}
    answers = [
        pages.ask(f"{API}/experiments/search?max_results=9", Origin=other),
        pages.ask(f"/get-artifact?path=note.txt&run_uuid={pages.runs['own']}", Origin=other),
        pages.ask(make, "POST", {"name": "theirs"}, Origin=other),
        pages.ask(make, "POST", '{"name": "theirs"}', Origin=other, **plain),
        pages.ask(upload, "POST", b"x", Origin=other, **plain),
        pages.ask(put, "PUT", b"x", Origin=other),
        pages.ask("/v1/traces", "POST", b"x", Origin=other),
    ]
    assert [answer.status for answer in answers] == [403] * len(answers)
    assert [answer for answer in answers if b"demo" in answer.body or b"ours" in answer.body] == []
    assert "theirs" not in pages.experiments()
    assert list(pages.root.rglob("theirs.txt")) == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "localhost:{port}"])
def test_other_names_of_this_machine_are_refused(pages: Pages, host: str):
    name = host.format(port=pages.address.rpartition(":")[2])
    search = f"{API}/experiments/search?max_results=9"
    read = pages.ask(search, Host=name, Origin=f"http://{name}")
    made = pages.ask(f"{API}/experiments/create", "POST", {"name": "theirs"}, Host=name)
    assert (read.status, made.status) == (403, 403)
    assert "theirs" not in pages.experiments()


def test_own_pages_read_and_post(pages: Pages):
    made = pages.ask(f"{API}/experiments/create", "POST", {"name": "mine"}, Origin=pages.address)
    note = pages.ask(f"/get-artifact?path=note.txt&run_uuid={pages.runs['own']}")
    put = pages.ask(
        "/api/2.0/mlflow-artifacts/artifacts/mine.txt", "PUT", b"x", Origin=pages.address
    )
    assert (made.status, put.status) == (200, 200)
    assert "mine" in pages.experiments()
    assert (note.status, note.body) == (200, b"of ours")
    assert (pages.root / ARTIFACTS / "mine.txt").read_bytes() == b"x"


def test_no_page_frames_it_and_it_keeps_no_cookie(pages: Pages):
    """Cookies go to every port of a machine, so a second server would replace the first one's."""
    front = pages.ask("/")
    assert (front.status, b"<html" in front.body.lower()) == (200, True)
    assert front.headers["x-frame-options"] == "DENY"
    assert "set-cookie" not in front.headers


def test_the_address_with_the_password_leads_to_one_without(pages: Pages):
    answer = pages.ask("/login")
    assert (answer.status, answer.headers["location"]) == (302, f"{pages.address}/")


PLACES = ["file", "plain", "up", "link", "http", "s3", "ftp", "models"]


@pytest.mark.parametrize("name", PLACES)
def test_artefacts_are_only_those_below_the_root(pages: Pages, name: str):
    run, before = pages.runs[name], pages.state()
    read = pages.ask(f"/get-artifact?path=secret.txt&run_uuid={run}")
    listed = pages.ask(f"{API}/artifacts/list?run_id={run}")
    upload = f"/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=theirs.txt"
    pages.ask(upload, "POST", b"x")
    assert SECRET not in read.body
    assert b"secret.txt" not in listed.body
    assert pages.state() == before
    assert not pages.called()


@pytest.mark.parametrize(
    "path",
    [
        "/get-artifact?path=link/secret.txt&run_uuid={own}",
        "/get-artifact?path=../../../../outside0/secret.txt&run_uuid={own}",
        f"{API}/artifacts/list?path=link&run_id={{own}}",
        "/model-versions/get-artifact?path=secret.txt&name=model&version=1",
        f"{API}/logged-models/m-theirs/artifacts/directories",
        "/ajax-api/2.0/mlflow/logged-models/m-theirs/artifacts/files?artifact_file_path=secret.txt",
        "/api/2.0/mlflow-artifacts/artifacts/../../outside0/secret.txt",
        "/api/2.0/mlflow-artifacts/artifacts/%2e%2e/%2e%2e/outside0/secret.txt",
        "/api/2.0/mlflow-artifacts/artifacts?path=../../outside0",
    ],
)
def test_links_models_and_ways_up_lead_to_nothing(pages: Pages, path: str):
    answer = pages.ask(path.format(own=pages.runs["own"]))
    assert answer.status >= 400
    assert SECRET not in answer.body
    assert not pages.called()


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_an_experiment_that_names_a_place_outside_has_no_effect(pages: Pages, scheme: str):
    foreign = f"http://127.0.0.1:{pages.listener.getsockname()[1]}/x"
    place = foreign if scheme == "http" else pages.outside.as_uri()
    before = pages.state()
    given = {"name": f"outside by {scheme}", "artifact_location": place}
    made = pages.ask(f"{API}/experiments/create", "POST", given)
    if made.status == 200:
        experiment = json.loads(made.body)
        run = json.loads(pages.ask(f"{API}/runs/create", "POST", experiment).body)
        which = f"run_uuid={run['run']['info']['run_id']}"
        read = pages.ask(f"/get-artifact?path=secret.txt&{which}")
        sent = pages.ask(f"/ajax-api/2.0/mlflow/upload-artifact?{which}&path=x.txt", "POST", b"x")
        assert (read.status, sent.status) >= (400, 400)
    assert pages.state() == before
    assert not pages.called()


def test_a_database_of_deleted_experiments_has_a_page_too(pages: Pages):
    renamed = "UPDATE experiments SET lifecycle_stage = ? WHERE lifecycle_stage = ?"
    with sqlite3.connect(pages.root / DATABASE) as database:
        database.execute(renamed, ("deleted", "active"))
        database.commit()
        try:
            page = newest_page(pages.root, pages.address, pages.password)
        finally:
            database.execute(renamed, ("active", "deleted"))
    database.close()
    assert page.endswith("/login#/experiments/0?workflowType=machine_learning")


@pytest.mark.parametrize("password", [None, "0" * 24])
def test_sync_without_the_password_is_one_line(
    pages: Pages,
    password: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    (tmp_path / "experiment.yaml").write_text("name: x\n")
    if password is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    words = ["sync", str(tmp_path), "--uri", pages.address, "--timeout", "20"]
    assert main(words) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert f"not delivered to {pages.address}" in line
    assert "401" in line or "not authenticated" in line


def test_only_its_user_can_read_the_password(pages: Pages):
    family = [pages.process, *pages.process.children(recursive=True)]
    folder = Path(pages.process.cwd())
    listening = {
        connection.laddr.ip
        for each in family
        for connection in each.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert [word for each in family for word in each.cmdline() if pages.password in word] == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "users.db").exists()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if pages.password.encode() in path.read_bytes()] == []
    assert listening == {"127.0.0.1"}
    assert len(family) == 2


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_command_opens_on_the_newest_experiment_and_ends_with_all(
    tmp_path: Path, end: signal.Signals
):
    Store(Publisher(tmp_path / "one", sqlite_uri(tmp_path / DATABASE), "demo"))
    words = ["ui", "--root", str(tmp_path), "--no-browser"]
    command = [sys.executable, "-m", "subquad.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout is not None
            shown = ui.stdout.readline()
            family = psutil.Process(ui.pid).children(recursive=True)
            folder = Path(family[0].cwd())
        finally:
            ui.send_signal(end)
        _, errors = ui.communicate(timeout=60)
    store = MlflowClient(sqlite_uri(tmp_path / DATABASE))
    newest = store.get_experiment_by_name("demo").experiment_id
    assert re.fullmatch(
        rf"http://admin:(\w+)@127\.0\.0\.1:\d+/login#/experiments/{newest}\?workflowType="
        r"machine_learning  \(user admin, password \1; Ctrl-C stops it\)\n",
        shown,
    )
    assert (ui.returncode, errors) == (0, "")
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert not folder.exists()


def test_a_port_in_use_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / DATABASE).touch()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        words = ["ui", "--root", str(tmp_path), "--no-browser", "--port", str(port)]
        assert main(words) == 2
    message = f"subquad: --port {port}: Address already in use; leave --port out for a free one\n"
    assert capsys.readouterr().err == message


def test_a_database_of_a_newer_mlflow_is_one_line(
    pages: Pages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copy(pages.root / DATABASE, tmp_path)
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    database.close()
    assert main(["ui", "--root", str(tmp_path), "--no-browser"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("subquad: the MLflow server did not start: ")
    assert "ffffffffffff" in line
