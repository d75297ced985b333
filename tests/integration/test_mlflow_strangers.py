"""A stranger's mlruns.db beside runs: what it says leads nothing anywhere else."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow.entities import Run, RunData
from result_file import ended
from talking import Sink

from subquad.errors import RunError
from subquad.record.files import write_json
from subquad.record.metrics import Record
from subquad.record.names import METRICS, RESULT
from subquad.tracking.address import ARTIFACTS, DATABASE, SETTINGS, sqlite_uri
from subquad.tracking.importing import Importer
from subquad.tracking.mlflow import Store, StoredRun
from subquad.tracking.publisher import Publisher

OWN = b"the user's own\n"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "canary-mlflow")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with an experiment: making one takes seconds."""
    folder = tmp_path_factory.mktemp("template")
    Store(Publisher(folder, sqlite_uri(folder / DATABASE), "demo"))
    return folder / DATABASE


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.stop()


@pytest.fixture
def run(tmp_path: Path, template: Path) -> Path:
    """A stranger's run that finished, in a folder with a database, beside a victim's."""
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("result.json", "experiment.yaml", "metrics.jsonl"):
        (victim / name).write_bytes(OWN)
    run = tmp_path / "given" / "runs" / "demo" / "20260101-000000-abcdef01"
    run.mkdir(parents=True)
    (run / "experiment.yaml").write_text("name: demo\nmixer: {name: agf}\n")
    record = Record(kind="train", step=1, epoch=0.1, seconds=1, time=1.7e9, metrics={"loss": 1.0})
    (run / METRICS).write_text(record.line())
    write_json(run / RESULT, ended("finished", label="agf"))
    shutil.copy(template, database(run))
    return run


def database(run: Path) -> Path:
    return run.parents[2] / DATABASE


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def send(run: Path) -> str | None:
    """Why a run was not sent to the database beside it; None where it was."""
    upload = Publisher(uri=sqlite_uri(database(run)), experiment="demo", folder=run)
    return Importer(upload).look(final=True).error


def outside(run: Path) -> dict[str, bytes]:
    """Every file that is not in the stranger's folder."""
    base = run.parents[3]
    files = (path for path in base.rglob("*") if path.is_file())
    return {
        str(path): path.read_bytes() for path in files if not path.is_relative_to(base / "given")
    }


def sent_files(run: Path) -> set[str]:
    folder = database(run).parent / ARTIFACTS
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", ["victim", "file", "server", "artifacts", "parts"])
@pytest.mark.parametrize("level", ["experiments", "runs"])
def test_artefacts_go_below_the_root_whatever_the_database_says(
    run: Path, sink: Sink, place: str, level: str
):
    victim = run.parents[3] / "victim"
    uri = {
        "victim": str(victim),
        "file": victim.as_uri(),
        "server": f"{sink.address}/api/2.0/mlflow-artifacts/artifacts",
        "artifacts": f"mlflow-artifacts://{sink.address.removeprefix('http://')}/x",
        "parts": (database(run).parent / ARTIFACTS / ".." / ".." / "victim").as_uri(),
    }[place]
    before = outside(run)
    if level == "experiments":
        execute(database(run), f"UPDATE experiments SET artifact_location = '{uri}'")
    else:
        assert send(run) is None
        shutil.rmtree(database(run).parent / ARTIFACTS)
        execute(database(run), f"UPDATE runs SET artifact_uri = '{uri}'")
        write_json(run / RESULT, ended("failed", label="agf"))
    assert send(run) is None
    assert outside(run) == before
    assert sink.asked == []
    assert sent_files(run) == {"experiment.yaml", "metrics.jsonl", "result.json"}


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_an_id_that_is_a_path_leads_nowhere(run: Path, status: str):
    assert send(run) is None
    names = ("runs", "tags", "metrics", "latest_metrics", "params")
    execute(
        database(run),
        "PRAGMA foreign_keys = OFF",
        *(f"UPDATE {name} SET run_uuid = '../../victim'" for name in names),
        "UPDATE tags SET value = '' WHERE key = 'subquad.files'",
    )
    write_json(run / RESULT, ended(status, label="agf"))
    before = outside(run)
    assert "../../victim" in str(send(run))
    assert outside(run) == before


@pytest.mark.parametrize("part", ["folder", "run", "file"])
def test_artefacts_follow_no_link(run: Path, part: str):
    victim = run.parents[3] / "victim"
    folder = database(run).parent / ARTIFACTS
    if part == "folder":
        folder.symlink_to(victim)
    else:
        assert send(run) is None
        (own,) = folder.iterdir()
        shutil.rmtree(own / "artifacts")
        if part == "run":
            (own / "artifacts").symlink_to(victim)
        else:
            (own / "artifacts").mkdir()
            (own / "artifacts" / "result.json").symlink_to(victim / "result.json")
        write_json(run / RESULT, ended("failed", label="agf"))
    before = outside(run)
    error = send(run)
    assert outside(run) == before
    assert (error is None) == (part == "file")  # the link itself is replaced


@pytest.mark.parametrize(
    "location",
    [
        "file:///home/u/.ssh",
        "http://elsewhere/x",
        "mlflow-artifacts://elsewhere/x",
        "dbfs:/x",
        "s3://elsewhere/x",
    ],
)
def test_another_user_of_a_server_does_not_say_where_artefacts_go(tmp_path: Path, location: str):
    (tmp_path / "result.json").write_text("{}")
    facts: Any = SimpleNamespace(run_id="0" * 32, artifact_uri=location, status="RUNNING")
    found = Run(facts, RunData())
    store: Any = Store.__new__(Store)
    store._client, store._artifacts = SimpleNamespace(tracking_uri="http://lab"), None
    with pytest.raises(
        RunError, match=rf"^no artefacts are sent: the server wants them at {location}"
    ):
        store._send_files(StoredRun(found), tmp_path, ["result.json"])


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_database_that_is_no_plain_file_is_refused(run: Path, suffix: str, kind: str):
    path = database(run).with_name(DATABASE + suffix)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(run.parents[3] / "victim" / "result.json")
    else:
        os.mkfifo(path)
    before = outside(run)
    words = "a link" if kind == "link" else "neither a file nor a folder"
    assert send(run) == (
        f"RunError: {path}: {words}, which is refused among the files of runs: remove it"
    )
    assert outside(run) == before


def test_a_lock_that_is_a_link_is_not_followed(run: Path):
    lock = database(run).with_name(f"{DATABASE}.lock")
    lock.unlink(missing_ok=True)
    lock.symlink_to(run.parents[3] / "victim" / "result.json")
    before = outside(run)
    assert str(send(run)).startswith("OSError")
    assert outside(run) == before


def test_a_journal_that_names_a_file_does_not_delete_it(run: Path):
    victim = run.parents[3] / "victim" / "result.json"
    name = str(victim).encode()
    journal = database(run).with_name(f"{DATABASE}-journal")
    page, sector = 4096, 512
    header = bytes.fromhex("d9d505f920a163d7") + b"".join(
        number.to_bytes(4, "big") for number in (0, 1, 1, sector, page)
    )
    tail = (0x40000000 // page + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    tail += (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(header.ljust(sector, b"\0") + tail)
    assert "names another file, which SQLite would delete" in str(send(run))
    assert victim.read_bytes() == OWN


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM tags; END", "a trigger t"),
        ("CREATE VIEW v AS SELECT * FROM runs", "a view v"),
        ("CREATE VIRTUAL TABLE w USING fts5(x)", "a table w"),
    ],
)
def test_a_database_that_does_things_by_itself_is_refused(run: Path, statement: str, words: str):
    execute(database(run), statement)
    assert send(run) == f"RunError: {database(run)}: has {words}, which MLflow does not make"


@pytest.mark.parametrize(
    "statement", ["UPDATE alembic_version SET version_num = 'ffffffffffff'", "DROP TABLE metrics"]
)
def test_a_database_of_another_mlflow_is_not_changed(run: Path, statement: str):
    execute(database(run), "UPDATE alembic_version SET version_num = 'ffffffffffff'", statement)
    before = database(run).read_bytes()
    error = str(send(run))
    assert "out-of-date database schema (found version ffffffffffff" in error
    assert "\n" not in error
    assert database(run).read_bytes() == before


def test_what_is_no_database_is_told_in_one_line_whatever_its_size(run: Path):
    begun = time.process_time()
    with database(run).open("wb") as stream:
        stream.truncate(1 << 40)
    assert send(run) == f"RunError: {database(run)}: file is not a database"
    assert time.process_time() - begun < 5
    database(run).write_bytes(b"no database at all" * 100)
    assert send(run) == f"RunError: {database(run)}: file is not a database"
