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
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here needs its eight extra processes
    "MLFLOW_BASIC_AUTH_FAIL_CLOSED": "true",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",  # a stranger's database may name models and addresses
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "none",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Of every process here that imports MLflow, which reads some at once. A value that the user has
set stays.
"""
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
        uri = os.environ.get(VARIABLE) or sqlite_uri(root.resolve() / DATABASE)
        key = VARIABLE
    known = (*_SERVERS, *_DATABASES)
    scheme = _scheme(uri)
    database = sqlite_path(uri)
    if scheme not in known or (database and database.name in ("", ":memory:")):
        raise ConfigError(
            f"{key}: {mask(uri)!r} is no MLflow store; give sqlite:///FILE, or an address of "
            f"{', '.join(known)}{did_you_mean(scheme, known)}"
        )
    if database is None:
        return uri
    _, mark, query = uri.partition("?")
    return f"{sqlite_uri(root.resolve() / database)}{mark}{query}"


def sqlite_uri(path: Path) -> str:
    """URI of a database file."""
    return f"sqlite:///{str(path).translate(_ESCAPED)}"


def sqlite_path(uri: str) -> Path | None:
    """The database file of a sqlite URI, None for another store."""
    if _scheme(uri) != "sqlite":
        return None
    path, _, _ = uri.partition(":///")[2].partition("?")
    return Path(unquote(path))


def artifact_folder(uri: str, root: Path) -> Path | None:
    """Where artefacts go: beside a database file, below `root` for a database server, None where
    a server decides.
    """
    if _scheme(uri) in _SERVERS:
        return None
    database = sqlite_path(uri)
    return (database.parent if database else root).resolve() / ARTIFACTS


def _scheme(uri: str) -> str:
    """`postgresql` of `postgresql+psycopg2://...`; MLflow takes `databricks` alone too."""
    return uri.partition(":")[0].partition("+")[0].lower()
