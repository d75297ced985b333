"""MLflow settings of subquad's own processes. Each is a default: a value the user has set stays.

They are set only in processes that subquad starts for MLflow, so a user's own MLflow code keeps its settings.
"""

from __future__ import annotations

import os

CLIENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
SERVER = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here needs its eight extra processes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
}
_LIGHT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def client_environment() -> dict[str, str]:
    """Environment of the process that sends to MLflow."""
    return {**CLIENT, **os.environ, **_LIGHT}


def server_environment() -> dict[str, str]:
    """Environment of an MLflow server."""
    return {**SERVER, **os.environ}
