"""Which MLflow store: the experiment's, the environment's, or sqlite beside the runs. Its
address without secrets.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from subquad.addresses import mask
from subquad.errors import ConfigError
from subquad.suggest import did_you_mean

DATABASE, ARTIFACTS = "mlruns.db", "mlartifacts"
VARIABLE = "MLFLOW_TRACKING_URI"
_SERVERS = ("http", "https", "databricks")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ESCAPED = str.maketrans({"%": "%25", "?": "%3F", "#": "%23"})


def store_uri(uri: str | None, root: Path, *, key: str = "tracking.uri") -> str:
    """The store's absolute URI.

    Args:
        uri: what the user gave; None: the environment's MLFLOW_TRACKING_URI, else sqlite in `root`.
        root: folder that holds `runs/`; relative sqlite files are taken from here.
        key: the setting `uri` came from, for messages.

    Raises:
        ConfigError: a kind of store that MLflow does not have or no longer opens.
    """
    if uri is None:
        uri = os.environ.get(VARIABLE)
        key = VARIABLE
        if not uri:
            return sqlite_uri(root.resolve() / DATABASE)
    scheme = _scheme(uri)
    known = (*_SERVERS, *_DATABASES)
    if scheme in ("", "file"):
        raise ConfigError(
            f"{key}: {mask(uri)!r} is a folder, which MLflow 3 no longer writes to; "
            "give sqlite:///FILE or a server's http(s) address"
        )
    if scheme not in known:
        names = ", ".join(known)
        hint = did_you_mean(scheme, known)
        raise ConfigError(f"{key}: {scheme!r} is no MLflow store; known: {names}{hint}")
    database = sqlite_path(uri)
    if database is None:
        return uri
    if ":///" not in uri or str(database) in (".", ":memory:"):
        raise ConfigError(f"{key}: {uri!r} names no file; give sqlite:///FILE")
    _, mark, query = uri.partition("?")
    absolute = sqlite_uri(root.resolve() / database)
    return f"{absolute}{mark}{query}"


def sqlite_uri(path: Path) -> str:
    """URI of a database file."""
    return f"sqlite:///{str(path).translate(_ESCAPED)}"


def sqlite_path(uri: str) -> Path | None:
    """The database file of a sqlite URI, None for another store."""
    if _scheme(uri) != "sqlite":
        return None
    path, _, _ = uri.split(":///", 1)[-1].partition("?")
    return Path(unquote(path))


def artifact_folder(uri: str, root: Path) -> Path | None:
    """Where artefacts go: beside a database file, below `root` for a database server, None where
    a server decides.
    """
    if _scheme(uri) in _SERVERS:
        return None
    database = sqlite_path(uri)
    above = database.parent if database else root
    return above.resolve() / ARTIFACTS


def _scheme(uri: str) -> str:
    if uri == "databricks":
        return uri
    kind, colon, _ = uri.partition(":")
    if not colon:
        return ""
    scheme, _, _ = kind.partition("+")
    return scheme.lower()
