"""Which store is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from subquad.errors import ConfigError
from subquad.tracking.address import artifact_folder, sqlite_path, sqlite_uri, store_uri


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_default_is_sqlite_beside_the_runs(tmp_path: Path):
    assert store_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlruns.db"


def test_the_experiments_address_goes_before_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from-environment:5000")
    assert store_uri(None, tmp_path) == "http://from-environment:5000"
    assert store_uri("http://from-experiment:5000", tmp_path) == "http://from-experiment:5000"


def test_a_relative_database_is_taken_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir("/")
    assert (
        store_uri("sqlite:///sub/x.db?timeout=30", tmp_path)
        == f"sqlite:///{tmp_path}/sub/x.db?timeout=30"
    )


@pytest.mark.parametrize(
    "name", ["plain.db", "with space.db", "per%20cent.db", "ask?.db", "hash#.db", "ümlaut.db"]
)
def test_any_file_name_survives_the_uri(tmp_path: Path, name: str):
    assert sqlite_path(sqlite_uri(tmp_path / name)) == tmp_path / name
    assert store_uri(sqlite_uri(tmp_path / name), tmp_path) == sqlite_uri(tmp_path / name)


def test_artefacts_lie_beside_a_database_file_and_where_a_server_wants_them(tmp_path: Path):
    assert (
        artifact_folder(f"sqlite:///{tmp_path}/deep/x.db", Path("/else"))
        == tmp_path / "deep" / "mlartifacts"
    )
    assert artifact_folder("postgresql://u:p@h/db", tmp_path) == tmp_path / "mlartifacts"
    assert artifact_folder("http://h:5000", tmp_path) is None


@pytest.mark.parametrize(
    "uri",
    [
        *("mlruns", "./mlruns", "file:///data/mlruns", "/data/mlruns"),
        *("sqlite://", "sqlite:///", "sqlite:///:memory:", ""),
    ],
)
def test_what_is_no_store_is_refused(uri: str, tmp_path: Path):
    words = r"^tracking\.uri: '.*' is no MLflow store; give sqlite:///FILE, or an address of http, "
    with pytest.raises(ConfigError, match=words):
        store_uri(uri, tmp_path)


def test_an_unknown_kind_is_refused_with_the_nearest_one(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"'htps://h' is no MLflow .*; did you mean 'https'\?$"):
        store_uri("htps://h", tmp_path)


def test_the_environments_mistake_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///x")
    with pytest.raises(ConfigError, match=r"^MLFLOW_TRACKING_URI: 'file:///x' is no MLflow store"):
        store_uri(None, tmp_path)
