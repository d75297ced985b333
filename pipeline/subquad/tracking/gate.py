"""What `subquad ui` adds to MLflow's own server: its login counts for its own pages alone, and
artefacts are those below the root.

MLflow imports this module before it answers the first request that needs a login, because
`authorization_function` of its settings names it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import make_response, redirect, request
from mlflow.exceptions import MlflowException
from mlflow.server.auth import authenticate_request_basic_auth
from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from werkzeug.datastructures import Authorization

from subquad.tracking.server import LOGIN, ROOT


def authorize() -> Any:
    """MLflow's login by password, for what is no request of another page.

    MLflow answers the pages of every port of this machine, and a browser adds the password to what
    they ask for. An address that holds the password, which MLflow's pages cannot ask from, leads on
    to one that does not; browsers keep what follows its #.
    """
    own = request.host_url.removesuffix("/")
    if request.headers.get("Origin", own) != own:
        return make_response("a page of another address asks", 403)
    user = authenticate_request_basic_auth()
    if request.path == LOGIN and isinstance(user, Authorization):
        return redirect(f"{own}/")
    return user


def _below_root(place: str, **more: str | None) -> LocalArtifactRepository:
    """The artefacts of a place below the root; a database may name any place."""
    artefacts = LocalArtifactRepository(place, **more)
    if not Path(artefacts.artifact_dir).resolve().is_relative_to(os.environ[ROOT]):
        raise MlflowException.invalid_parameter_value("its artefacts are not below the root")
    return artefacts


_kinds: dict[str, Any] = get_registered_artifact_repositories()
_kinds.clear()
_kinds.update(dict.fromkeys(("", "file"), _below_root))
