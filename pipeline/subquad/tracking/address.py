"""Which MLflow store: the experiment's, the environment's, or sqlite beside the runs. Its
address without secrets.
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

from subquad.addresses import mask
from subquad.errors import ConfigError
from subquad.suggest import did_you_mean

DATABASE, ARTIFACTS = "mlruns.db", "mlartifacts"
VARIABLE = "MLFLOW_TRACKING_URI"
_SERVERS = ("http", "https", "databricks")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ESCAPED = str.maketrans({"%": "%25", "?": "%3F", "#": "%23"})
_HEALTH_SECONDS = 2.5  # each to connect and to answer: a dead server costs at most 5 s
_DOWN = (502, 503, 504)


class StoreDown(Exception):
    """A tracking server does not answer."""


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
    above = database.parent if database else root.resolve()
    return above / ARTIFACTS


def check_server(uri: str, seconds: float | None = None) -> None:
    """Ask a server for a sign of life, before MLflow waits with its own long retries; a database is
    not asked.

    Args:
        seconds: that it may take to connect, and again to answer; 2.5 where None.

    Raises:
        StoreDown: there is none.
    """
    if _scheme(uri) not in ("http", "https"):
        return
    parts = urlsplit(uri)
    _, _, host = parts.netloc.rpartition("@")  # without user and password: any answer will do
    path = parts.path.rstrip("/")
    health = parts._replace(netloc=host, path=f"{path}/health")
    try:
        urllib.request.urlopen(health.geturl(), timeout=seconds or _HEALTH_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _DOWN:
            raise StoreDown(f"{mask(uri)}: answers {error.code}") from error
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        # A certificate this process does not trust is a sign of life; MLflow's own settings say
        # which ones to trust.
        if not isinstance(cause, ssl.SSLError):
            reason = getattr(cause, "strerror", None) or cause
            raise StoreDown(f"{mask(uri)}: no answer ({reason})") from error


def _scheme(uri: str) -> str:
    if uri == "databricks":
        return uri
    kind, colon, _ = uri.partition(":")
    if not colon:
        return ""
    scheme, _, _ = kind.partition("+")
    return scheme.lower()
