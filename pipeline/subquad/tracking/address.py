"""Which MLflow store: the experiment's, the environment's, or sqlite beside the runs. Always absolute."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from subquad.errors import ConfigError
from subquad.suggest import did_you_mean
from subquad.tracking.secrets import mask

DATABASE, ARTIFACTS = "mlruns.db", "mlartifacts"
VARIABLE = "MLFLOW_TRACKING_URI"
_SERVERS = ("http", "https", "databricks")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ESCAPED = {"%": "%25", "?": "%3F", "#": "%23"}


def choose(uri: str | None, root: Path, *, key: str = "tracking.uri") -> str:
    """The store's absolute URI.

    Args:
        uri: what the user gave; None: the environment's MLFLOW_TRACKING_URI, else sqlite in `root`.
        root: folder that holds `runs/`; relative sqlite files are taken from here.
        key: the setting `uri` came from, for messages.

    Raises:
        ConfigError: a kind of store that MLflow does not have or no longer opens.
    """
    if uri is None and (uri := os.environ.get(VARIABLE) or None):
        key = VARIABLE
    if uri is None:
        return sqlite_uri(root.resolve() / DATABASE)
    return _absolute(uri, root, key)


def sqlite_uri(path: Path) -> str:
    """URI of a database file."""
    return "sqlite:///" + "".join(_ESCAPED.get(character, character) for character in str(path))


def sqlite_path(uri: str) -> Path | None:
    """The database file of a sqlite URI, None for another store."""
    if _scheme(uri) != "sqlite":
        return None
    return Path(unquote(uri.split(":///", 1)[-1].split("?", 1)[0]))


def artifact_folder(uri: str, root: Path) -> Path | None:
    """Where artefacts go: beside a database file, below `root` for a database server, None where a server decides."""
    if _scheme(uri) in _SERVERS:
        return None
    database = sqlite_path(uri)
    return (database.parent if database else root.resolve()) / ARTIFACTS


def is_http(uri: str) -> bool:
    return _scheme(uri) in ("http", "https")


def _scheme(uri: str) -> str:
    return (
        uri.split(":", 1)[0].split("+", 1)[0].lower() if ":" in uri else ("databricks" if uri == "databricks" else "")
    )


def _absolute(uri: str, root: Path, key: str) -> str:
    scheme = _scheme(uri)
    if scheme in ("", "file"):
        raise ConfigError(
            f"{key}: {mask(uri)!r} is a folder, which MLflow 3 no longer writes to; "
            "give sqlite:///FILE or a server's http(s) address"
        )
    if scheme not in (*_SERVERS, *_DATABASES):
        known = (*_SERVERS, *_DATABASES)
        raise ConfigError(
            f"{key}: {scheme!r} is no MLflow store; known: {', '.join(known)}{did_you_mean(scheme, known)}"
        )
    database = sqlite_path(uri)
    if database is not None and (":///" not in uri or str(database) in (".", ":memory:")):
        raise ConfigError(f"{key}: {uri!r} names no file; give sqlite:///FILE")
    query = uri.partition("?")[1:]
    return sqlite_uri(root.resolve() / database) + "".join(query) if database else uri
